import type { HttpMethod, PoolName } from "../wire/index.js";
import type { AuthProvider } from "./auth.js";
import type { Clock } from "./clock.js";
import type { Logger, LogLevel } from "./logger.js";
import type { RequestHeaders } from "./request-headers.js";

export type { HttpMethod, PoolName };

/** Header values by name; null removes a header the SDK would have sent. */
export type HeaderValues = Readonly<Record<string, string | null | undefined>>;

/** What a query parameter may be. */
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

/** What a caller may set for one call; it wins over the client's own settings. */
export interface RequestOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds without any progress (headers, or the next piece of the body) before an attempt is given up. */
  readonly timeout?: number | undefined;
  readonly maxRetries?: number | undefined;
  readonly headers?: HeaderValues | undefined;
}

/** One exchange with the server. */
export interface ApiRequest extends RequestOptions {
  readonly method: HttpMethod;
  /** Begins with "/" and is put behind the base URL. */
  readonly path: string;
  readonly query?: Query | undefined;
  /** Sent as JSON. Give either this or `body`. */
  readonly json?: unknown;
  readonly body?: RequestBody | undefined;
  /** Content type of `body`, where the body does not carry its own. */
  readonly contentType?: string | undefined;
  readonly accept?: string | undefined;
  /** A success that is not JSON is then taken for the page of some proxy, and asked for again a few times. */
  readonly expect?: "json" | undefined;
  /** "train" when absent. */
  readonly pool?: PoolName | undefined;
  /** Stays the same over all retries; made up when absent and the method is not GET. */
  readonly idempotencyKey?: string | undefined;
  /** How often the same request was sent before; told to the server. */
  readonly earlierAttempts?: number | undefined;
  /** While the server answers nobody, wait this long at most instead of trying. Absent: try all the same. */
  readonly patienceMs?: number | undefined;
  readonly redirect?: "follow" | "manual" | undefined;
  /** Credential of this exchange alone, in place of the client's. */
  readonly auth?: AuthProvider | undefined;
}

/** Options of `get`, `post`, `put` and `delete`, the calls to endpoints the SDK does not know. */
export interface EndpointOptions
  extends RequestOptions,
    Pick<ApiRequest, "query" | "contentType" | "accept" | "pool" | "idempotencyKey" | "redirect"> {
  /** A RequestBody is sent as it is, anything else as JSON. A stream cannot be sent twice and is not retried. */
  readonly body?: unknown;
}

/** An answer with a status below 400, read to its end. */
export interface ApiResponse {
  readonly status: number;
  readonly headers: Headers;
  /** Media type in lower case without parameters; "" when the server named none. */
  readonly contentType: string;
  readonly bytes: Uint8Array;
  /** The body as JSON; undefined when it is empty. Throws APIError when it is not JSON. */
  json(): unknown;
}

/** One attempt, told to subscribers after it ended. */
export interface ExchangeEvent {
  readonly pool: PoolName;
  readonly method: HttpMethod;
  readonly path: string;
  /** null when no answer came. */
  readonly status: number | null;
  readonly durationMs: number;
  /** 0 for the first attempt. */
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
  /** Default: TINKER_BASE_URL, else the hosted service. */
  readonly baseURL?: string | undefined;
  /** Milliseconds, default 60,000. */
  readonly timeout?: number | undefined;
  /** Default 10. */
  readonly maxRetries?: number | undefined;
  readonly fetch?: typeof fetch | undefined;
  readonly defaultHeaders?: HeaderValues | undefined;
  readonly logger?: Logger | undefined;
  /** Default: TINKER_LOG, else "warn". */
  readonly logLevel?: LogLevel | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}
