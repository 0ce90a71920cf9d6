import {
  abortSignal,
  anyText,
  eitherOf,
  type Field,
  type FieldsOf,
  functionOf,
  having,
  isRecord,
  nonNegativeInteger,
  oneOf,
  opaque,
  optional,
  optionTable,
  value,
  withDefault,
} from "../wire/index.js";
import type { Clock } from "./clock.js";
import { LOG_LEVELS, type Logger } from "./logger.js";
import type { EndpointOptions, HeaderValues, HttpClientOptions, Query, RequestOptions } from "./types.js";

/** A span of time above 0, which may be `Infinity`. */
export const durationMs = value<number>(
  "a positive number of milliseconds",
  (given) => typeof given === "number" && given > 0,
);
const headers = value<HeaderValues>("an object of header values by name", isRecord);

/** Time of a program or a test, in place of the system's. */
export const clockField: Field<Clock> = having<Clock>("a Clock", "sleep");

/** The options that every call takes. */
export const REQUEST_FIELDS = {
  signal: optional(abortSignal),
  timeout: optional(durationMs),
  maxRetries: optional(nonNegativeInteger),
  headers: optional(headers),
} satisfies FieldsOf<RequestOptions>;

/** The options of a call that takes no others. */
export const REQUEST_OPTIONS = optionTable(REQUEST_FIELDS);

/** The options of `get`, `post`, `put` and `delete`. */
export const ENDPOINT_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  query: optional(value<Query>("an object of parameters by name", isRecord)),
  body: optional(opaque),
  contentType: optional(anyText),
  accept: optional(anyText),
  pool: optional(anyText as Field<NonNullable<EndpointOptions["pool"]>>),
  idempotencyKey: optional(anyText),
  redirect: optional(oneOf("follow", "manual")),
} satisfies FieldsOf<EndpointOptions>);

/** The options of a client of one server. */
export const HTTP_CLIENT_FIELDS = {
  apiKey: optional(
    eitherOf(
      (given) => typeof given === "function",
      functionOf<() => string | Promise<string>>(),
      value<string>("a string, or a function that returns one", (given) => typeof given === "string"),
    ),
  ),
  baseURL: optional(anyText),
  timeout: withDefault(durationMs, 60_000),
  maxRetries: withDefault(nonNegativeInteger, 10),
  fetch: optional(functionOf<typeof fetch>()),
  defaultHeaders: optional(headers),
  logger: optional(having<Logger>("a logger, as console is one", "warn")),
  logLevel: optional(oneOf(...LOG_LEVELS)),
  clock: optional(clockField),
  random: optional(functionOf<() => number>()),
} satisfies FieldsOf<HttpClientOptions>;

/** The options of a connection, in an object that may hold those of its client too. */
export const HTTP_CLIENT_OPTIONS = optionTable(HTTP_CLIENT_FIELDS, { open: true });
