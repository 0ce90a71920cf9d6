import type { RequestHeaders } from "./request-headers.js";

/** What goes out, ready to be written. */
export interface OutgoingRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: RequestHeaders;
  readonly body: Uint8Array | ReadableStream<Uint8Array> | undefined;
  readonly signal: AbortSignal;
  /** "manual" shows redirects. Senders that can see redirects treat "follow" the same: we follow ourselves. */
  readonly redirect: "manual" | "follow";
}

/** What came back: the headers are here, the body is read piece by piece. */
export interface Answer {
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
  /** Gives up the rest of the body and frees the connection. */
  cancel(): void;
}

/** Writes one request and resolves with the headers of its answer. */
export type Sender = (request: OutgoingRequest) => Promise<Answer>;
