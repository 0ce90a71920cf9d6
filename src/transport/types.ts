import type { HttpMethod, PoolName } from "../wire/index.js";
import type { AuthProvider } from "./auth.js";
import type { Clock } from "./clock.js";
import type { Logger, LogLevel } from "./logger.js";
import type { RequestHeaders } from "./request-headers.js";

export type { HttpMethod, PoolName };

/** Header values by name; null removes a header the SDK would have sent. */
export type HeaderValues = Readonly<Record<string, string | null | undefined>>;

/** Value of a query parameter. */
export type QueryValue =
  | string
  | number
  | boolean
  | null
  | undefined
  | readonly (string | number | boolean)[];

/** Query parameters; undefined and null are left out, lists are joined by commas. */
export type Query = Readonly<Record<string, QueryValue>>;

/** A body that is sent as it is. */
export type RequestBody =
  | string
  | Uint8Array
  | ArrayBuffer
  | Blob
  | FormData
  | URLSearchParams
  | ReadableStream<Uint8Array>;

/** Settings of one call; they override those of the client. */
export interface RequestOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds without any progress (headers, or the next piece of the body) before an attempt is given up. */
  readonly timeout?: number | undefined;
  readonly maxRetries?: number | undefined;
  readonly headers?: HeaderValues | undefined;
}

/** One exchange with the server. */
export interface APIRequest extends RequestOptions {
  readonly method: HttpMethod;
  /** Begins with "/" and is added to the base URL. */
  readonly path: string;
  readonly query?: Query | undefined;
  /** Value that is sent as JSON. Give either this or `body`. */
  readonly json?: unknown;
  readonly body?: RequestBody | undefined;
  /** Content type of `body`, where the body does not carry its own. */
  readonly contentType?: string | undefined;
  readonly accept?: string | undefined;
  /** A success that is not JSON then counts as a proxy's page, and is requested again a few times. */
  readonly expect?: "json" | undefined;
  /** Connection pool that the request uses; default "train". */
  readonly pool?: PoolName | undefined;
  /** Stays the same over all retries; made up when absent and the method is not GET. */
  readonly idempotencyKey?: string | undefined;
  /** Times this request was sent before; reported to the server. */
  readonly earlierAttempts?: number | undefined;
  /** Longest wait while the server is known to be down. Absent: send without waiting. */
  readonly patienceMs?: number | undefined;
  readonly redirect?: "follow" | "manual" | undefined;
  /** Credential of this exchange alone, in place of the client's. */
  readonly auth?: AuthProvider | undefined;
}

/** Options of `get`, `post`, `put` and `delete`, the calls to endpoints the SDK does not know. */
export interface EndpointOptions
  extends RequestOptions,
    Pick<APIRequest, "query" | "contentType" | "accept" | "pool" | "idempotencyKey" | "redirect"> {
  /** A RequestBody is sent as it is, anything else as JSON. A stream cannot be sent twice and is not retried. */
  readonly body?: unknown;
}

/** An answer with a status below 400, read to its end. */
export interface APIResponse {
  readonly status: number;
  readonly headers: Headers;
  /** Media type in lower case without parameters; "" when the server named none. */
  readonly contentType: string;
  readonly bytes: Uint8Array;
  /** The body as JSON; undefined when it is empty. Throws APIError when it is not JSON. */
  json(): unknown;
}

/** One attempt at a request, reported to subscribers after it ended. */
export interface ExchangeEvent {
  readonly pool: PoolName;
  readonly method: HttpMethod;
  readonly path: string;
  /** HTTP status; null when no answer came. */
  readonly status: number | null;
  readonly durationMs: number;
  /** Number of earlier attempts: 0 for the first. */
  readonly attempt: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly error?: unknown;
}

/** Sees every attempt: before it is sent, and after it ended. */
export interface ExchangeHook {
  beforeSend?: (headers: RequestHeaders, request: { method: HttpMethod; path: string }) => void;
  afterExchange?: (event: ExchangeEvent) => void;
}

/** Settings of a client of one server. */
export interface HttpClientOptions {
  /** A key, or a function that returns one; asked before every attempt. Default: TINKER_API_KEY. */
  readonly apiKey?: string | (() => string | Promise<string>) | undefined;
  /** URL of the server. Default: TINKER_BASE_URL, else the hosted service. */
  readonly baseURL?: string | undefined;
  /** Milliseconds without progress before an attempt is abandoned; default 60,000. */
  readonly timeout?: number | undefined;
  /** Retries of a request that failed; default 10. */
  readonly maxRetries?: number | undefined;
  readonly fetch?: typeof fetch | undefined;
  readonly defaultHeaders?: HeaderValues | undefined;
  readonly logger?: Logger | undefined;
  /** Least severe level that is logged. Default: TINKER_LOG, else "warn". */
  readonly logLevel?: LogLevel | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}
