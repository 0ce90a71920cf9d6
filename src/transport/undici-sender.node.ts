import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import { onAbort } from "./abort.js";
import { type HttpAnswer, type OutgoingRequest, readPieces } from "./sender.js";

const ACCEPTED_ENCODINGS = "gzip, deflate, br";
/** A larger announced body gets its memory only as it arrives. */
const MAX_BYTES_ON_TRUST = 64 << 20;
/** Unread bytes after which the connection is paused. */
const PAUSE_ABOVE_BYTES = 1 << 20;

/**
 * Sends straight through undici's dispatcher. Its `fetch` costs several times as much per request, and marks
 * every POST as not repeatable, which makes HTTP/2 send them one after the other.
 */
export function sendThrough(
  dispatcher: Dispatcher,
  request: OutgoingRequest,
  onConnected: () => void,
): Promise<HttpAnswer> {
  const { origin, pathname, search } = new URL(request.url);
  const headers = request.headers.flat();
  if (!request.headers.has("accept-encoding")) headers.push("accept-encoding", ACCEPTED_ENCODINGS);
  return new Promise((resolve, reject) => {
    dispatcher.dispatch(
      {
        origin,
        path: pathname + search,
        method: request.method as Dispatcher.HttpMethod,
        headers,
        body: (request.body ?? null) as Exclude<Dispatcher.DispatchOptions["body"], undefined>,
        // Every request carries an idempotency key, or is a GET.
        idempotent: true,
      },
      new AnswerHandler(request, onConnected, resolve, reject),
    );
  });
}

/** Turns the callbacks of undici into an HttpAnswer. */
class AnswerHandler implements Dispatcher.DispatchHandler {
  readonly #request: OutgoingRequest;
  readonly #onConnected: () => void;
  readonly #resolve: (answer: HttpAnswer) => void;
  readonly #reject: (error: Error) => void;
  readonly #chunks: Uint8Array[] = [];
  #unreadBytes = 0;
  #controller: Dispatcher.DispatchController | undefined;
  #unsubscribe = () => {};
  #wakeReader: (() => void) | undefined;
  /** Takes each piece as it comes, once the whole body is being read. */
  #sink: ((piece: Uint8Array) => void) | undefined;
  #ended = false;
  #error: Error | undefined;

  constructor(
    request: OutgoingRequest,
    onConnected: () => void,
    resolve: (answer: HttpAnswer) => void,
    reject: (error: Error) => void,
  ) {
    this.#request = request;
    this.#onConnected = onConnected;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    const { signal } = this.#request;
    this.#onConnected();
    this.#unsubscribe();
    this.#controller = controller;
    const abort = () => controller.abort(new Error("aborted"));
    if (signal.aborted) abort();
    else this.#unsubscribe = onAbort(signal, abort);
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    statusText?: string,
  ): void {
    if (status < 200) return;
    const answer = new UndiciAnswer(this, this.#request.url, status, statusText ?? "", headers);
    const encoding = headers["content-encoding"]?.trim().toLowerCase();
    this.#resolve(isKnownEncoding(encoding) ? decoded(answer, encoding) : answer);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    if (this.#sink !== undefined) {
      this.#sink(chunk);
      return;
    }
    this.#chunks.push(chunk);
    this.#unreadBytes += chunk.byteLength;
    if (this.#wakeReader !== undefined) this.#wake();
    else if (this.#unreadBytes > PAUSE_ABOVE_BYTES) controller.pause();
  }

  onResponseEnd(): void {
    this.#finish();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#error = error;
    this.#onConnected();
    this.#reject(error);
    this.#finish();
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#unreadBytes -= chunk.byteLength;
        return chunk;
      }
      if (this.#error !== undefined) throw this.#error;
      if (this.#ended) return undefined;
      if (this.#controller?.paused) this.#controller.resume();
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
  }

  /** The body copied piece by piece to where it stays, when its length is known. */
  async readAll(announcedBytes: number, onProgress: (bytes: number) => void): Promise<Uint8Array> {
    if (!(announcedBytes > 0 && announcedBytes <= MAX_BYTES_ON_TRUST))
      return readPieces({ read: () => this.read() }, onProgress);
    const body = new Uint8Array(announcedBytes);
    let offset = 0;
    const sink = (piece: Uint8Array) => {
      body.set(piece, offset);
      offset += piece.byteLength;
      onProgress(piece.byteLength);
    };
    for (const piece of this.#chunks.splice(0)) sink(piece);
    this.#unreadBytes = 0;
    this.#sink = sink;
    // Waits for the end: from here on no piece is left for `read`.
    await this.read();
    return body;
  }

  cancel(): void {
    if (!this.#ended) this.#controller?.abort(new Error("cancelled"));
  }

  #finish(): void {
    this.#ended = true;
    this.#unsubscribe();
    this.#wake();
  }

  #wake(): void {
    const wake = this.#wakeReader;
    this.#wakeReader = undefined;
    wake?.();
  }
}

class UndiciAnswer implements HttpAnswer {
  readonly hidesRedirect = false;
  readonly url: string;
  readonly status: number;
  readonly statusText: string;
  readonly #body: AnswerHandler;
  readonly #rawHeaders: IncomingHttpHeaders;
  #headers: Headers | undefined;

  constructor(
    body: AnswerHandler,
    url: string,
    status: number,
    statusText: string,
    rawHeaders: IncomingHttpHeaders,
  ) {
    this.#body = body;
    this.url = url;
    this.status = status;
    this.statusText = statusText;
    this.#rawHeaders = rawHeaders;
  }

  /** Made when asked for: most answers are read without. */
  get headers(): Headers {
    this.#headers ??= toHeaders(this.#rawHeaders);
    return this.#headers;
  }

  header(name: string): string | null {
    const value = this.#rawHeaders[name];
    return Array.isArray(value) ? value.join(", ") : (value ?? null);
  }

  read(): Promise<Uint8Array | undefined> {
    return this.#body.read();
  }

  readAll(onProgress: (bytes: number) => void): Promise<Uint8Array> {
    return this.#body.readAll(Number(this.header("content-length")), onProgress);
  }

  cancel(): void {
    this.#body.cancel();
  }
}

function toHeaders(headers: IncomingHttpHeaders): Headers {
  const result = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (typeof value === "string") result.set(name, value);
    else for (const item of value ?? []) result.append(name, item);
  }
  return result;
}

const DECODERS = {
  gzip: "createGunzip",
  "x-gzip": "createGunzip",
  deflate: "createInflate",
  br: "createBrotliDecompress",
} as const;

function isKnownEncoding(encoding: string | undefined): encoding is keyof typeof DECODERS {
  return encoding !== undefined && Object.hasOwn(DECODERS, encoding);
}

/** Decompresses the body of an answer. */
function decoded(answer: HttpAnswer, encoding: keyof typeof DECODERS): HttpAnswer {
  let pieces: AsyncIterator<Uint8Array> | undefined;
  const open = async () => {
    const [{ pipeline, Readable }, zlib] = await Promise.all([import("node:stream"), import("node:zlib")]);
    const decoder = zlib[DECODERS[encoding]]();
    // A failure on either side destroys the decoder, whose iterator then throws it.
    pipeline(Readable.from(piecesOf(answer)), decoder, () => {});
    return decoder[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  };
  const read = async () => {
    pieces ??= await open();
    const { done, value } = await pieces.next();
    return done ? undefined : value;
  };
  const { url, status, statusText, headers, hidesRedirect } = answer;
  return {
    url,
    status,
    statusText,
    headers,
    hidesRedirect,
    header: (name) => answer.header(name),
    cancel: () => answer.cancel(),
    read,
    readAll: (onProgress) => readPieces({ read }, onProgress),
  };
}

async function* piecesOf(answer: HttpAnswer): AsyncGenerator<Uint8Array> {
  for (;;) {
    const piece = await answer.read();
    if (piece === undefined) return;
    yield piece;
  }
}
