import { BillingPause, type Metrics, Session } from "../../session/index.js";
import {
  type AnswerSource,
  APIPromise,
  type ApiRequest,
  type ApiResponse,
  type CallOptions,
  type EndpointOptions,
  HttpClient,
  type HttpClientOptions,
  requestTo,
  toResponse,
  untilAborted,
} from "../../transport/index.js";
import { PROTOCOL_VERSION } from "../../version.js";
import { type Endpoint, endpointNames, type GivenMessage, type Shape, wireName } from "../../wire/index.js";

/** A message, or what makes it and may throw. */
type MessageOf<S extends Shape> = GivenMessage<S> | (() => GivenMessage<S>);

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

  async exchange(request: ApiRequest): Promise<ApiResponse> {
    const { config } = await this.connect(request.signal);
    const { clock, logger } = this.http;
    const maxPauseMs = config.billingExceptionMaxPauseDurationSec * 1000;
    this.#billing ??= new BillingPause({ clock, logger, maxPauseMs });
    return this.#billing.outlast(() => this.http.exchange(request), request.signal);
  }

  /**
   * A call of an endpoint, its answer read by `read`; the server is told which SDK method asks. The message is made when
   * it is sent, so that bad arguments reject the promise.
   */
  source<S extends Shape, A, T>(
    endpoint: Endpoint<S, A>,
    message: MessageOf<S>,
    options: CallOptions,
    read: (answer: A) => T,
  ): AnswerSource<T> {
    const request = () => {
      const given = typeof message === "function" ? message() : message;
      const checked = endpoint.request.check(given, "") as unknown as GivenMessage<S>;
      return requestTo(endpoint, checked, withSdkHeaders(endpoint, options));
    };
    return {
      parsed: async () => {
        const response = await this.exchange({ ...request(), expect: "json" });
        return { data: read(endpoint.answer.fromJson(response.json())), response: toResponse(response) };
      },
      raw: async () => {
        const { path, json: body, method: name, ...rest } = request();
        await this.connect(rest.signal);
        const method = name.toLowerCase() as "get" | "post" | "put" | "delete";
        return this.http[method](path, { ...rest, body }).asResponse();
      },
    };
  }

  call<S extends Shape, A>(
    endpoint: Endpoint<S, A>,
    message: MessageOf<S>,
    options: CallOptions,
  ): APIPromise<A> {
    return new APIPromise(this.source(endpoint, message, options, (answer) => answer));
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
export function withSdkHeaders<O extends CallOptions>(endpoint: object, options: O): O {
  const name = endpointNames.get(endpoint as Endpoint) ?? "";
  const headers = { "x-sdk-version": PROTOCOL_VERSION, "x-sdk-method": wireName(name) };
  return { ...options, headers: { ...headers, ...options.headers } };
}
