import { BillingPause, type ClientMetrics, Session } from "../../session/index.js";
import {
  type AnswerSource,
  APIPromise,
  type APIRequest,
  type APIResponse,
  ENDPOINT_OPTIONS,
  type EndpointOptions,
  HttpClient,
  type HttpClientOptions,
  REQUEST_FIELDS,
  type RequestOptions,
  requestTo,
  type SendOptions,
  toResponse,
  untilAborted,
} from "../../transport/index.js";
import { PROTOCOL_VERSION } from "../../version.js";
import {
  anyText,
  checkObject,
  type Endpoint,
  endpointNames,
  type GivenMessage,
  message,
  optional,
  type Shape,
  unknownField,
  wireName,
} from "../../wire/index.js";

/** A message, or a function that makes it and may throw. */
type MessageOf<S extends Shape> = Partial<GivenMessage<S>> | (() => Partial<GivenMessage<S>>);

/** Options of a call, together with the fields of its message. */
export type EndpointCallOptions<S extends Shape> = RequestOptions &
  Pick<SendOptions, "idempotencyKey"> &
  Partial<GivenMessage<S>>;

const CALL_OPTIONS = { ...REQUEST_FIELDS, idempotencyKey: optional(anyText) };
const callOptions = message(CALL_OPTIONS);

/** Requests outside any session: settings and credential are fetched with the first request. */
export class RestConnection {
  readonly http: HttpClient;
  readonly #metrics: ClientMetrics;
  #connecting: Promise<Session> | undefined;
  #session: Session | undefined;
  #billing: BillingPause | undefined;

  constructor(options: HttpClientOptions, metrics: ClientMetrics) {
    this.http = new HttpClient(options);
    this.#metrics = metrics;
  }

  /** The signal ends only this wait: other calls may wait for the same connection. */
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

  async exchange(request: APIRequest): Promise<APIResponse> {
    const { config } = await this.connect(request.signal);
    const { clock, logger } = this.http;
    const maxPauseMs = config.billingExceptionMaxPauseDurationSec * 1000;
    this.#billing ??= new BillingPause({ clock, logger, maxPauseMs });
    return this.#billing.outlast(() => this.http.exchange(request), request.signal);
  }

  /**
   * Calls an endpoint and parses its answer with `read`. Options that are fields of the endpoint become part of the
   * message, which is built when it is sent, so that bad arguments reject the promise.
   */
  source<S extends Shape, A, T>(
    endpoint: Endpoint<S, A>,
    message: MessageOf<S>,
    options: EndpointCallOptions<S>,
    read: (answer: A) => T,
  ): AnswerSource<T> {
    const request = () => {
      const { fields, call } = splitOptions(endpoint, options);
      const given = typeof message === "function" ? message() : message;
      const checked = endpoint.request.check({ ...fields, ...given }, "") as unknown as GivenMessage<S>;
      return requestTo(endpoint, checked, withSdkHeaders(endpoint, call));
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
    options: EndpointCallOptions<S>,
  ): APIPromise<A> {
    return new APIPromise(this.source(endpoint, message, options, (answer) => answer));
  }

  /** Calls any endpoint by method and path. */
  endpoint<T>(
    method: "get" | "post" | "put" | "delete",
    path: string,
    given: EndpointOptions = {},
  ): APIPromise<T> {
    const call = async () => {
      const options = ENDPOINT_OPTIONS.check(given, method);
      await this.connect(options.signal);
      return { answer: this.http[method]<T>(path, options) };
    };
    return new APIPromise<T>({
      parsed: async () => (await call()).answer.withResponse(),
      raw: async () => (await call()).answer.asResponse(),
    });
  }

  async close(): Promise<void> {
    if (this.#session === undefined) await this.http.close();
    const session = await this.#connecting?.catch(() => undefined);
    await session?.close();
  }
}

function splitOptions<S extends Shape>(endpoint: Endpoint<S>, options: EndpointCallOptions<S>) {
  checkObject(options, "the options");
  const names = [...Object.keys(endpoint.request.shape), ...Object.keys(CALL_OPTIONS)];
  const fields: Record<string, unknown> = {};
  const call: Record<string, unknown> = {};
  for (const [name, given] of Object.entries(options)) {
    if (!names.includes(name)) throw unknownField(name, names, "");
    (name in CALL_OPTIONS ? call : fields)[name] = given;
  }
  return { fields, call: callOptions.check(call, "") };
}

/** The server counts which SDK methods are used, by these names. */
export function withSdkHeaders<O extends SendOptions>(endpoint: object, options: O): O {
  const name = endpointNames.get(endpoint as Endpoint) ?? "";
  const headers = { "x-sdk-version": PROTOCOL_VERSION, "x-sdk-method": wireName(name) };
  return { ...options, headers: { ...headers, ...options.headers } };
}
