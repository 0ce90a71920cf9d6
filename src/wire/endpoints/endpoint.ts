import { TinkerError } from "../../errors.js";
import * as f from "../fields/index.js";
import { fromWireJson, toWireJson } from "../json-keys.js";
import { isRecord } from "../reading.js";

/** Advice where an answer is not that of a Tinker server. */
export const CHECK_BASE_URL = "Check that TINKER_BASE_URL or the baseURL option points at a Tinker server.";

/** Connections are pooled by purpose, so that none of them starves another. */
export type PoolName = "train" | "sample" | "session" | "retrieve" | "telemetry";

export type HttpMethod = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** How an answer or a result travels as JSON. */
export interface JsonCodec<T> {
  fromJson(json: unknown): T;
  toJson(value: T): unknown;
}

/** The result of a long operation: its name in the protocol, and how it is encoded. */
export interface FutureKind<T> extends JsonCodec<T> {
  readonly requestType: string;
  /** Present when the result may come as protobuf. */
  fromBytes?(bytes: Uint8Array): Promise<T>;
}

/**
 * One endpoint: where it is, what it takes and what it answers. A field whose name stands in the path (`:name`) travels
 * there; the others in the query of a GET or DELETE, and in the body of anything else.
 */
export interface Endpoint<S extends f.Shape = f.Shape, Answer = unknown> {
  readonly method: HttpMethod;
  readonly path: `/api/v1/${string}`;
  readonly pool: PoolName;
  /** The `type` that bodies and answers of this endpoint carry. */
  readonly tag: string | undefined;
  readonly request: f.MessageField<S>;
  readonly answer: JsonCodec<Answer>;
}

/** The answer of a server that has accepted a long operation. */
export interface UntypedFuture {
  readonly requestId: string;
  readonly modelId?: string | null;
  /** Sampling only: one id per requested sample, in the order of the final sequences. */
  readonly sampleSequenceIds?: readonly string[] | null;
}

/** An endpoint that accepts work whose result is fetched later. */
export interface OperationEndpoint<S extends f.Shape = f.Shape, Result = unknown>
  extends Endpoint<S, UntypedFuture> {
  readonly future: FutureKind<Result>;
  /** Where the endpoint also takes its request as protobuf, and the bytes of one. */
  readonly protobuf?: ProtobufForm<S> | undefined;
}

interface ProtobufForm<S extends f.Shape> {
  readonly path: `/api/v1/${string}`;
  write(message: f.GivenMessage<S>): Uint8Array;
}

/** Names in camelCase here, in snake_case on the wire; unknown fields are kept. */
export function json<T>(): JsonCodec<T> {
  return { fromJson: (value) => fromWireJson<T>(value), toJson: toWireJson };
}

export function future<T>(requestType: string): FutureKind<T> {
  return { requestType, ...json<T>() };
}

interface EndpointOptions<S extends f.Shape> {
  readonly pool?: PoolName;
  readonly tag?: string;
  readonly fields?: S;
  readonly rule?: (request: f.FilledMessage<S>, path: string) => void;
}

export function endpoint<Answer, S extends f.Shape = Record<never, never>>(
  method: HttpMethod,
  path: `/api/v1/${string}`,
  options: EndpointOptions<S> & {
    readonly answer: JsonCodec<Answer>;
    /** Fields of the answer that must be lists; callers go through them without looking. */
    readonly lists?: readonly (keyof Answer & string)[];
  },
): Endpoint<S, Answer> {
  const { pool = "train", tag, fields, rule, lists = [] } = options;
  const request = f.message((fields ?? {}) as S, rule === undefined ? {} : { rule });
  const answer = withLists(options.answer, lists, `${method} ${path}`);
  return { method, path, pool, tag, request, answer };
}

function withLists<T>(codec: JsonCodec<T>, lists: readonly string[], what: string): JsonCodec<T> {
  if (lists.length === 0) return codec;
  return {
    ...codec,
    fromJson: (json) => {
      const value = codec.fromJson(json);
      const isList = (list: unknown) => Array.isArray(list) && !list.includes(null);
      const missing = lists.find((name) => !isRecord(value) || !isList(value[name]));
      if (missing === undefined) return value;
      throw new TinkerError(`${what} answered without a list of ${missing}. ${CHECK_BASE_URL}`);
    },
  };
}

export function operation<Result, S extends f.Shape>(
  path: `/api/v1/${string}`,
  options: EndpointOptions<S> & {
    readonly future: FutureKind<Result>;
    readonly protobuf?: ProtobufForm<S>;
  },
): OperationEndpoint<S, Result> {
  const { future: kind, protobuf, ...rest } = options;
  return { ...endpoint<UntypedFuture, S>("POST", path, { ...rest, answer: json() }), future: kind, protobuf };
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
export function encodeRequest<S extends f.Shape>(
  target: Pick<Endpoint<S>, "method" | "path" | "pool" | "tag" | "request">,
  given: f.GivenMessage<S>,
): EncodedRequest {
  const { method, pool, tag, request } = target;
  const inPath = target.path.includes(":") ? parametersOf(target.path) : [];
  const values: Record<string, unknown> = { ...given };
  let path: string = target.path;
  for (const name of inPath) {
    path = path.replace(`:${name}`, encodeSegment(String(values[name])));
    delete values[name];
  }
  const written = request.write(values as f.GivenMessage<S>);
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
export function decodeRequest<S extends f.Shape>(
  target: Pick<Endpoint<S>, "method" | "path" | "request">,
  parts: {
    readonly parameters: Readonly<Record<string, string>>;
    readonly query: Readonly<Record<string, string>>;
    readonly body: Readonly<Record<string, unknown>>;
  },
): f.FilledMessage<S> {
  const source = hasBody(target.method) ? parts.body : parts.query;
  const wireParameters = target.request.write(parts.parameters as f.GivenMessage<S>);
  const isWhole = Object.keys(wireParameters).length === 0;
  return target.request.read(isWhole ? source : { ...source, ...wireParameters }, "");
}
