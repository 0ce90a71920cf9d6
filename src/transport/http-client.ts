import type { AuthProvider } from "./auth.js";
import type { Clock } from "./clock.js";
import type { Logger } from "./logger.js";
import type { ApiRequest, ApiResponse, ExchangeHook, HttpClientOptions } from "./types.js";

/** Speaks HTTP with one server: credentials, retries, timeouts, logging. */
export declare class HttpClient {
  constructor(options?: HttpClientOptions);
  readonly baseURL: string;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly random: () => number;
  auth: AuthProvider;
  readonly hooks: ExchangeHook[];
  exchange(request: ApiRequest): Promise<ApiResponse>;
  close(): Promise<void>;
}
