import type { Clock } from "../transport/clock.js";
import { clockField, durationMs } from "../transport/index.js";
import type { Logger } from "../transport/logger.js";
import {
  abortSignal,
  anyText,
  boolean,
  type Field,
  type FieldsOf,
  having,
  integerFrom,
  isRecord,
  list,
  message,
  nonNegative,
  nonNegativeInteger,
  type OptionsOf,
  opaque,
  option,
  optional,
  optionTable,
  portion,
  positive,
  positiveInteger,
  text,
  value,
  withDefault,
  wrongValue,
} from "../wire/index.js";
import type { GatewayOptions, SessionLimits, SessionOptions } from "./gateway.js";
import { readUpstream } from "./upstream/service.js";

/** The options of `startGateway`. */
export const GATEWAY_OPTIONS = optionTable(
  {
    service: option(
      optional(having<NonNullable<GatewayOptions["service"]>>("a ServiceClient", "createSamplingClient")),
      "makes the samplers of models",
    ),
    models: option(
      withDefault(value<NonNullable<GatewayOptions["models"]>>("an object of models by name", isRecord), {}),
      "models by the names that agents use",
    ),
    map: option(
      withDefault(value<NonNullable<GatewayOptions["map"]>>("an object of names by name", isRecord), {}),
      "names of models as agents send them, and the model that answers for each",
    ),
    maxContextLength: option(optional(positiveInteger), "tokens of a prompt and its answer together", {
      otherwise: "what the server says, or 32768",
      flag: true,
    }),
    port: option(withDefault(integerFrom(0, 65_535), 0), "port to listen on; 0 for any free port", {
      flag: true,
    }),
    host: option(withDefault(text, "127.0.0.1"), "address of this machine to listen on", { flag: true }),
    listen: option(withDefault(boolean, true), "open a socket"),
    apiKeys: option(withDefault(list(anyText), []), "API keys that clients must send"),
    record: option(optional(text), "folder in which sessions are recorded as they happen", {
      otherwise: "not recorded",
      value: "folder",
      flag: true,
    }),
    maxRecordBytes: option(
      withDefault(positiveInteger, 8 * 2 ** 30),
      "bytes that the recording may have; beyond them agents are answered and not recorded",
      { flag: true },
    ),
    upstream: option(
      optional(text),
      "OpenAI- or Anthropic-compatible service that requests are passed to; conversations are recorded, without tokens",
      { otherwise: "requests are answered by the models", flag: true },
    ),
    upstreamApiKey: option(optional(text), "API key for the upstream service", {
      otherwise: "the one that the agent sends",
    }),
    sessionTimeoutMs: option(
      withDefault(positive, 30 * 60_000),
      "milliseconds without a request after which a session that a request began ends",
    ),
    maxSessions: option(withDefault(positiveInteger, 4096), "sessions that are open at one time", {
      flag: true,
    }),
    maxSessionBytes: option(
      withDefault(positiveInteger, 256 * 2 ** 20),
      "bytes of tokens and messages that one session may hold",
    ),
    logger: option(
      withDefault(having<Pick<Logger, "error" | "warn">>("a logger, as console is one", "warn"), console),
      "where problems are reported",
    ),
    clock: option(optional(clockField as Field<Clock>), "time, in place of the system's"),
  } satisfies OptionsOf<GatewayOptions>,
  ({ models, map, service, upstream, upstreamApiKey, apiKeys }) => {
    if (upstream !== undefined) checkUpstream({ models, upstream, upstreamApiKey, apiKeys });
    else if (upstreamApiKey !== undefined)
      throw wrongValue("upstream", "the address of the service that upstreamApiKey is for", upstream);
    for (const [name, model] of Object.entries(models)) {
      const isSampler = typeof model === "object" && model !== null && "sample" in model;
      if (!isSampler && (typeof model !== "string" || model === ""))
        throw wrongValue(`models.${name}`, "a base model, a tinker:// path or a sampler", model);
      if (!isSampler && service === undefined)
        throw wrongValue("service", `a ServiceClient, which makes the sampler of models.${name}`, service);
    }
    for (const [pattern, name] of Object.entries(map))
      if (!Object.hasOwn(models, name)) throw wrongValue(`map.${pattern}`, "the name of one of models", name);
  },
);

function checkUpstream({
  models = {},
  upstream = "",
  upstreamApiKey,
  apiKeys = [],
}: Pick<GatewayOptions, "models" | "upstream" | "upstreamApiKey" | "apiKeys">): void {
  if (readUpstream(upstream) === undefined)
    throw wrongValue(
      "upstream",
      "an address such as https://api.openai.com/v1, without a user or a query",
      upstream,
    );
  const [model] = Object.keys(models);
  if (model !== undefined)
    throw wrongValue("models", "absent with upstream, which answers all requests", model);
  if (apiKeys.length > 0 && upstreamApiKey === undefined)
    throw wrongValue(
      "upstreamApiKey",
      "a key for the upstream service: agents send a key of this gateway, which is not passed on",
      upstreamApiKey,
    );
}

/** The options of a gateway's `session`. */
export const SESSION_OPTIONS = optionTable({
  id: optional(text),
  problem: optional(opaque),
  group: optional(nonNegativeInteger),
  step: optional(nonNegativeInteger),
  tags: optional(list(anyText)),
  sampler: optional(
    value<NonNullable<SessionOptions["sampler"]>>(
      "{ sampler, step }, or a function that returns them",
      (given) => typeof given === "function" || (isRecord(given) && isRecord(given["sampler"])),
    ),
  ),
  renderer: optional(opaque as Field<NonNullable<SessionOptions["renderer"]>>),
  maxContextLength: optional(positiveInteger),
  limits: optional(
    message({
      maxTokens: optional(positiveInteger),
      maxTokensPerAnswer: optional(positiveInteger),
      maxRequests: optional(positiveInteger),
      maxDurationMs: optional(durationMs),
    } satisfies FieldsOf<SessionLimits>),
  ),
  sampling: optional(message({ temperature: optional(nonNegative), topP: optional(portion) })),
  ownerPid: optional(positiveInteger),
  signal: optional(abortSignal),
} satisfies FieldsOf<SessionOptions>);

/** The options of a gateway with their defaults. */
export type FilledGatewayOptions = ReturnType<typeof GATEWAY_OPTIONS.check>;
