import {
  type FilledMessage,
  type GivenMessage,
  type Message,
  message,
  type Shape,
} from "../fields/fields.js";
import { fromWireJson, toWireJson } from "../json-keys.js";

/** Connections are pooled by purpose, so that none of them starves another. */
export type PoolName = "train" | "sample" | "session" | "retrieve" | "telemetry";

export type HttpMethod = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** How an answer or a result travels as JSON. */
export interface JsonCodec<T> {
  fromJson(json: unknown): T;
  toJson(value: T): unknown;
}

/** What becomes of a long operation: its name in the protocol, and how its result travels. */
export interface FutureKind<T> extends JsonCodec<T> {
  readonly requestType: string;
  /** Present when the result may come as protobuf. */
  fromBytes?(bytes: Uint8Array): Promise<T>;
}

/**
 * One endpoint: where it is, what it takes and what it answers. A field whose name stands in the path (`:name`) travels
 * there; the others in the query of a GET or DELETE, and in the body of anything else.
 */
export interface Endpoint<S extends Shape = Shape, Answer = unknown> {
  readonly method: HttpMethod;
  readonly path: `/api/v1/${string}`;
  readonly pool: PoolName;
  /** The `type` that bodies and answers of this endpoint carry. */
  readonly tag: string | undefined;
  readonly request: Message<S>;
  readonly answer: JsonCodec<Answer>;
}

/** What a server answers when it has accepted a long operation. */
export interface UntypedFuture {
  readonly requestId: string;
  readonly modelId?: string | null;
  /** Sampling only: one id per requested sample, in the order of the final sequences. */
  readonly sampleSequenceIds?: readonly string[] | null;
}

/** An endpoint that accepts work whose result is fetched later. */
export interface OperationEndpoint<S extends Shape = Shape, Result = unknown>
  extends Endpoint<S, UntypedFuture> {
  readonly future: FutureKind<Result>;
}

/** Names in camelCase here, in snake_case on the wire; fields nobody knows are kept. */
export function json<T>(): JsonCodec<T> {
  return { fromJson: (value) => fromWireJson<T>(value), toJson: toWireJson };
}

export function future<T>(requestType: string): FutureKind<T> {
  return { requestType, ...json<T>() };
}

interface EndpointOptions<S extends Shape> {
  readonly pool?: PoolName;
  readonly tag?: string;
  readonly fields?: S;
  readonly rule?: (request: FilledMessage<S>, path: string) => void;
}

export function endpoint<Answer, S extends Shape = Record<never, never>>(
  method: HttpMethod,
  path: `/api/v1/${string}`,
  options: EndpointOptions<S> & { readonly answer: JsonCodec<Answer> },
): Endpoint<S, Answer> {
  const { pool = "train", tag, fields, rule, answer } = options;
  const request = message((fields ?? {}) as S, rule === undefined ? {} : { rule });
  return { method, path, pool, tag, request, answer };
}

export function operation<Result, S extends Shape>(
  path: `/api/v1/${string}`,
  options: EndpointOptions<S> & { readonly future: FutureKind<Result> },
): OperationEndpoint<S, Result> {
  const { future: kind, ...rest } = options;
  return { ...endpoint<UntypedFuture, S>("POST", path, { ...rest, answer: json() }), future: kind };
}

/** A request as HTTP carries it. */
export interface EncodedRequest {
  readonly method: HttpMethod;
  readonly path: string;
  readonly pool: PoolName;
  readonly query?: Readonly<Record<string, string | number | boolean | null>>;
  readonly json?: Readonly<Record<string, unknown>>;
}

const hasBody = (method: HttpMethod) => method !== "GET" && method !== "DELETE";
const parametersOf = (path: string) => [...path.matchAll(/:(\w+)/g)].map((match) => match[1]!);

/** Puts each field where it travels. */
export function encodeRequest<S extends Shape>(
  target: Pick<Endpoint<S>, "method" | "path" | "pool" | "tag" | "request">,
  given: GivenMessage<S>,
): EncodedRequest {
  const { method, pool, tag, request } = target;
  const inPath = target.path.includes(":") ? parametersOf(target.path) : [];
  const values: Record<string, unknown> = { ...given };
  let path: string = target.path;
  for (const name of inPath) {
    path = path.replace(`:${name}`, encodeSegment(String(values[name])));
    delete values[name];
  }
  const written = request.write(values as GivenMessage<S>);
  if (!hasBody(method)) return { method, path, pool, query: written as NonNullable<EncodedRequest["query"]> };
  if (tag !== undefined) written["type"] = tag;
  else if (Object.keys(request.shape).length === inPath.length) return { method, path, pool };
  return { method, path, pool, json: written };
}

/** The ids of runs and sessions have colons, which paths may carry as they are. */
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replaceAll("%3A", ":");
}

/** The server's side: the fields of a request wherever they came, checked, defaults filled in. */
export function decodeRequest<S extends Shape>(
  target: Pick<Endpoint<S>, "method" | "path" | "request">,
  parts: {
    readonly parameters: Readonly<Record<string, string>>;
    readonly query: Readonly<Record<string, string>>;
    readonly body: Readonly<Record<string, unknown>>;
  },
): FilledMessage<S> {
  const source: Record<string, unknown> = { ...(hasBody(target.method) ? parts.body : parts.query) };
  const wireParameters = target.request.write(parts.parameters as GivenMessage<S>);
  return target.request.read({ ...source, ...wireParameters }, "");
}
