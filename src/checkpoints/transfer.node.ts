import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { APIConnectionError, APIError, APITimeoutError, type TinkerError } from "../errors.js";
import { cannotWrite, writeFully } from "../files.node.js";
import {
  abortError,
  BACK_OFF,
  backOffMs,
  type Clock,
  isRetryableStatus,
  networkReason,
  onAbort,
  throwIfAborted,
} from "../transport/index.js";

/** State of a download, kept on disk beside its bytes. */
/** One file on its way from a URL to the disk. */
export interface TransferState {
  /** Strong ETag or date: identifies the version of the file that the bytes on disk belong to. */
  validator?: string;
  totalBytes?: number;
  complete?: boolean;
}

export interface Transfer {
  /** Name of the file in messages and progress. */
  readonly file: string;
  readonly target: string;
  readonly state: TransferState;
  saveState(): Promise<void>;
  /** Where the file is; `fresh` asks for a new URL because the last one was refused. */
  url(fresh: boolean): Promise<string>;
  onBytes(bytes: number, totalBytes: number | undefined): void;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
  readonly signal: AbortSignal | undefined;
}

type Outcome =
  | { kind: "complete" }
  /** The connection failed or broke, or the file changed: the download tries again after a pause. */
  | { kind: "broken"; error: TinkerError; headers?: Headers }
  /** The URL is invalid or expired. */
  | { kind: "refused"; error: APIError };

const STALL_MS = 60_000;
const MAX_FAILURES = 6;
const MAX_REFUSALS = 2;
/** A connection that delivers fewer bytes than this before it breaks counts as no progress. */
const PROGRESS_BYTES = 1 << 16;
/** Most bytes that wait to be written to disk. */
const READ_AHEAD_BYTES = 4 << 20;

/** Downloads a file, continuing where an earlier attempt stopped; returns true if bytes of that attempt were kept. */
export async function transferFile(transfer: Transfer): Promise<boolean> {
  const { file, state, clock, signal } = transfer;
  const handle = await open(transfer.target, constants.O_RDWR | constants.O_CREAT, 0o644);
  try {
    const found = (await handle.stat()).size;
    if (state.complete && found === state.totalBytes) return true;
    let furthest = found;
    let failures = 0;
    let refusals = 0;
    for (;;) {
      throwIfAborted(signal, `The download of ${file}`);
      const outcome = await attempt(transfer, handle, refusals > 0);
      if (outcome.kind === "complete") break;
      const { size } = await handle.stat();
      if (size >= furthest + PROGRESS_BYTES) {
        failures = 0;
        refusals = 0;
      }
      furthest = Math.max(furthest, size);
      if (outcome.kind === "refused") {
        refusals += 1;
        if (refusals > MAX_REFUSALS) throw outcome.error;
        continue;
      }
      failures += 1;
      if (failures >= MAX_FAILURES) {
        const total = state.totalBytes === undefined ? "" : ` of ${state.totalBytes}`;
        throw new APIConnectionError(
          `The download of ${file} stopped at byte ${size}${total} after ${failures} failures in a row: ${outcome.error.message} Call again to go on from there.`,
          { cause: outcome.error },
        );
      }
      const delayMs = backOffMs(BACK_OFF.request, failures - 1, {
        headers: outcome.headers,
        wallNow: clock.wallNow,
      });
      await clock.sleep(delayMs, signal);
    }
    await handle.sync();
    state.totalBytes = (await handle.stat()).size;
    state.complete = true;
    await transfer.saveState();
    return found > 0;
  } finally {
    await handle.close();
  }
}

async function attempt(transfer: Transfer, handle: FileHandle, freshUrl: boolean): Promise<Outcome> {
  const { state, file, signal } = transfer;
  const url = await transfer.url(freshUrl);
  const offset = (await handle.stat()).size;
  const watch = watchForStall(transfer);
  try {
    const response = await transfer
      .fetch(url, { headers: rangeHeaders(offset, state), signal: watch.signal })
      .catch((error: unknown) => {
        throw new NetworkFailure(error);
      });
    const refusal = await refusalOf(response, file);
    if (refusal !== undefined) return refusal;
    const chunks = new ReadAhead(response.body, watch.alive);
    const start = await startOf(response, offset, transfer, handle);
    if (typeof start !== "number") return start;
    return await receive(chunks, start, transfer, handle);
  } catch (error) {
    if (signal?.aborted) throw abortError(signal, `The download of ${file}`);
    if (!(error instanceof NetworkFailure)) throw error;
    const sentence = watch.stalled() ? `No bytes came for ${STALL_MS / 1000} s.` : error.message;
    const errorClass = watch.stalled() ? APITimeoutError : APIConnectionError;
    return { kind: "broken", error: new errorClass(sentence, { cause: error.cause }) };
  } finally {
    watch.end();
  }
}

function rangeHeaders(offset: number, state: TransferState): Record<string, string> {
  // With transfer compression, sizes and ranges would not be those of the file.
  const headers: Record<string, string> = { "accept-encoding": "identity" };
  if (offset === 0) return headers;
  headers["range"] = `bytes=${offset}-`;
  if (state.validator !== undefined) headers["if-range"] = state.validator;
  return headers;
}

async function refusalOf(response: Response, file: string): Promise<Outcome | undefined> {
  const { status, headers } = response;
  if (response.ok || status === 416) return undefined;
  const body = (await response.text().catch(() => "")).slice(0, 500);
  const error = APIError.from(status, headers, body, { method: "GET", path: file });
  if (isRetryableStatus(status)) return { kind: "broken", error, headers };
  // An expired signature is a 403 at most stores, a 400 at one, and a 401, 404 or 410 at other servers.
  if ([400, 401, 403, 404, 410].includes(status)) return { kind: "refused", error };
  throw error;
}

/** The position at which the answer's bytes belong; empties the file if the answer does not continue it. */
async function startOf(
  response: Response,
  offset: number,
  transfer: Transfer,
  handle: FileHandle,
): Promise<number | Outcome> {
  const { state } = transfer;
  const range = /^bytes (?:(\d+)-\d+|\*)\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
  const totalBytes = range?.[2] === undefined || range[2] === "*" ? undefined : Number(range[2]);
  if (response.status === 416) {
    if (totalBytes === offset && (state.totalBytes ?? offset) === offset) return { kind: "complete" };
    return startAgain(transfer, handle, "The file has another size than before.");
  }
  const validator = validatorOf(response.headers);
  if (response.status === 206) {
    const same =
      range?.[1] === String(offset) &&
      (state.totalBytes === undefined || totalBytes === undefined || totalBytes === state.totalBytes) &&
      (state.validator === undefined || validator === undefined || validator === state.validator);
    if (!same) {
      return startAgain(
        transfer,
        handle,
        "The file changed, or the server sent another part than asked for.",
      );
    }
    if (totalBytes !== undefined) state.totalBytes = totalBytes;
    await transfer.saveState();
    return offset;
  }
  await handle.truncate(0);
  const length = response.headers.get("content-length");
  delete state.validator;
  delete state.totalBytes;
  if (validator !== undefined) state.validator = validator;
  if (length !== null && !response.headers.has("content-encoding")) state.totalBytes = Number(length);
  await transfer.saveState();
  return 0;
}

async function startAgain(transfer: Transfer, handle: FileHandle, why: string): Promise<Outcome> {
  await handle.truncate(0);
  delete transfer.state.validator;
  delete transfer.state.totalBytes;
  await transfer.saveState();
  return { kind: "broken", error: new APIConnectionError(why) };
}

/** Weak ETags do not promise equal bytes. */
function validatorOf(headers: Headers): string | undefined {
  const etag = headers.get("etag");
  if (etag !== null && !etag.startsWith("W/")) return etag;
  return headers.get("last-modified") ?? undefined;
}

async function receive(
  chunks: ReadAhead,
  start: number,
  transfer: Transfer,
  handle: FileHandle,
): Promise<Outcome> {
  const { totalBytes } = transfer.state;
  let position = start;
  transfer.onBytes(position, totalBytes);
  for (let chunk = await chunks.next(); chunk !== undefined; chunk = await chunks.next()) {
    throwIfAborted(transfer.signal, `The download of ${transfer.file}`);
    await writeFully(handle, chunk, position).catch((error: unknown) => {
      throw cannotWrite(transfer.target, error);
    });
    position += chunk.length;
    transfer.onBytes(position, totalBytes);
  }
  if (totalBytes === undefined || position === totalBytes) {
    // If the server did not announce the size, it is known now.
    transfer.onBytes(position, position);
    return { kind: "complete" };
  }
  if (position > totalBytes) {
    return startAgain(
      transfer,
      handle,
      `The server sent more than the ${totalBytes} bytes it had announced.`,
    );
  }
  return {
    kind: "broken",
    error: new APIConnectionError(`The connection ended at byte ${position} of ${totalBytes}.`),
  };
}

function watchForStall({ clock, signal }: Transfer) {
  const controller = new AbortController();
  const unsubscribe = onAbort(signal, () => controller.abort(signal?.reason));
  let stalled = false;
  let lastByteAt = clock.now();
  let cancel: () => void;
  // One timer that compares the time of the last byte, instead of a new timer for each chunk.
  const check = () => {
    const left = lastByteAt + STALL_MS - clock.now();
    if (left > 0) cancel = clock.setTimer(check, left);
    else {
      stalled = true;
      controller.abort();
    }
  };
  cancel = clock.setTimer(check, STALL_MS);
  return {
    signal: controller.signal,
    stalled: () => stalled,
    alive: () => {
      lastByteAt = clock.now();
    },
    end: () => {
      cancel();
      unsubscribe();
      // Also ends a body that was not read completely.
      controller.abort();
    },
  };
}

/** Distinguishes network errors from errors of the disk or of the caller's code. */
class NetworkFailure extends Error {
  constructor(error: unknown) {
    super(`The connection broke: ${networkReason(error).text}.`, { cause: error });
  }
}

/**
 * Reads a body ahead while the disk is busy. A stream that breaks drops the chunks that were not read yet, so a
 * download at the disk's pace would fetch them again, or never get past a break soon after its start.
 */
class ReadAhead {
  readonly #chunks: Uint8Array[] = [];
  #waitingBytes = 0;
  #isDone = false;
  #failure: NetworkFailure | undefined;
  #wakeReader = () => {};
  #wakeNetwork = () => {};

  constructor(body: ReadableStream<Uint8Array> | null, alive: () => void) {
    void this.#read(body, alive);
  }

  /** The next chunk, or undefined at the end; after the last chunk that arrived, throws how the connection broke. */
  async next(): Promise<Uint8Array | undefined> {
    while (this.#chunks.length === 0 && !this.#isDone)
      await new Promise<void>((resolve) => (this.#wakeReader = resolve));
    const chunk = this.#chunks.shift();
    if (chunk === undefined && this.#failure !== undefined) throw this.#failure;
    this.#waitingBytes -= chunk?.length ?? 0;
    this.#wakeNetwork();
    return chunk;
  }

  async #read(body: ReadableStream<Uint8Array> | null, alive: () => void): Promise<void> {
    try {
      for await (const chunk of body ?? []) {
        alive();
        this.#chunks.push(chunk);
        this.#waitingBytes += chunk.length;
        this.#wakeReader();
        while (this.#waitingBytes > READ_AHEAD_BYTES)
          await new Promise<void>((resolve) => (this.#wakeNetwork = resolve));
      }
    } catch (error) {
      this.#failure = new NetworkFailure(error);
    }
    this.#isDone = true;
    this.#wakeReader();
  }
}
