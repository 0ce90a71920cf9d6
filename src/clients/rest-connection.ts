import { BillingPause, type Metrics, Session } from "../session/index.js";
import {
  APIPromise,
  type ApiRequest,
  type ApiResponse,
  type EndpointOptions,
  HttpClient,
  type HttpClientOptions,
  type RequestOptions,
  untilAborted,
} from "../transport/index.js";
import { PROTOCOL_VERSION } from "../version.js";
import { fromWireJson } from "../wire/index.js";

/** Requests outside any session: settings and credential are fetched with the first of them. */
export class RestConnection {
  readonly http: HttpClient;
  readonly #metrics: Metrics;
  #connecting: Promise<Session> | undefined;
  #session: Session | undefined;
  #billing: BillingPause | undefined;

  constructor(options: HttpClientOptions, metrics: Metrics) {
    this.http = new HttpClient(options);
    this.#metrics = metrics;
  }

  /** The signal ends only this wait: others may be waiting for the same connection. */
  connect(signal?: AbortSignal): Promise<Session> {
    this.#connecting ??= this.#connect();
    return untilAborted(this.#connecting, signal);
  }

  async #connect(): Promise<Session> {
    try {
      this.#session = await Session.connect(this.http, this.#metrics);
      return this.#session;
    } catch (error) {
      this.#connecting = undefined;
      throw error;
    }
  }

  async request(request: ApiRequest): Promise<ApiResponse> {
    const { config } = await this.connect(request.signal);
    const { clock, logger } = this.http;
    const maxPauseMs = config.billingExceptionMaxPauseDurationSec * 1000;
    this.#billing ??= new BillingPause({ clock, logger, maxPauseMs });
    return this.#billing.outlast(() => this.http.exchange(request), request.signal);
  }

  /** A request with a JSON body, or none; the server is told which SDK method asks. */
  async json<T>(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    sdkMethod: string,
    options: RequestOptions,
    json?: unknown,
    extra: Pick<ApiRequest, "query" | "idempotencyKey"> = {},
  ): Promise<T> {
    const response = await this.request({
      ...options,
      ...extra,
      method,
      path: `/api/v1${path}`,
      expect: "json",
      headers: { ...sdkHeaders(sdkMethod), ...options.headers },
      ...(json === undefined ? {} : { json }),
    });
    return fromWireJson<T>(response.json());
  }

  get<T>(path: string, sdkMethod: string, options: RequestOptions, query?: ApiRequest["query"]): Promise<T> {
    return this.json<T>("GET", path, sdkMethod, options, undefined, { query });
  }

  /** Any endpoint, as the caller names it. */
  endpoint<T>(
    method: "get" | "post" | "put" | "delete",
    path: string,
    options?: EndpointOptions,
  ): APIPromise<T> {
    return new APIPromise<T>({
      parsed: async () => {
        await this.connect(options?.signal);
        return this.http[method]<T>(path, options).withResponse();
      },
      raw: async () => {
        await this.connect(options?.signal);
        return this.http[method](path, options).asResponse();
      },
    });
  }

  async close(): Promise<void> {
    if (this.#session === undefined) await this.http.close();
    const session = await this.#connecting?.catch(() => undefined);
    await session?.close();
  }
}

/** The server keeps account of which SDK methods are in use by these. */
export function sdkHeaders(method: string): Record<string, string> {
  return { "x-sdk-version": PROTOCOL_VERSION, "x-sdk-method": method };
}
