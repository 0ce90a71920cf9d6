import type { RequestHeaders } from "./request-headers.js";

/** An encoded request. */
export interface OutgoingRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: RequestHeaders;
  readonly body: Uint8Array | ReadableStream<Uint8Array> | undefined;
  readonly signal: AbortSignal;
  /** "manual" shows redirects. Senders that can see redirects treat "follow" the same: we follow ourselves. */
  readonly redirect: "manual" | "follow";
  /** Throws when the request shall not go out after all; asked when a connection could be opened for it. */
  readonly beforeConnecting?: (() => void) | undefined;
}

/** An answer: the headers are there, the body is read piece by piece. */
export interface HttpAnswer {
  readonly url: string;
  readonly status: number;
  readonly statusText: string;
  readonly headers: Headers;
  /** One of them, by its name in lower case. */
  header(name: string): string | null;
  /** The runtime saw a redirect, but does not tell where to. */
  readonly hidesRedirect: boolean;
  /** The next piece of the body, undefined at its end. */
  read(): Promise<Uint8Array | undefined>;
  /** The whole body, in memory of its own; `onProgress` is called with each piece. */
  readAll(onProgress: (bytes: number) => void): Promise<Uint8Array>;
  /** Gives up the rest of the body and frees the connection. */
  cancel(): void;
}

/** Writes one request and resolves with the headers of its answer. */
export type Sender = (request: OutgoingRequest) => Promise<HttpAnswer>;

/** Reads a whole body with `read`. */
export async function readPieces(
  { read }: Pick<HttpAnswer, "read">,
  onProgress: (bytes: number) => void,
): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let byteLength = 0;
  for (;;) {
    const piece = await read();
    if (piece === undefined) break;
    byteLength += piece.byteLength;
    pieces.push(piece);
    onProgress(piece.byteLength);
  }
  const bytes = new Uint8Array(byteLength);
  let offset = 0;
  for (const piece of pieces) {
    bytes.set(piece, offset);
    offset += piece.byteLength;
  }
  return bytes;
}
