import type { Clock } from "../transport/clock.js";
import { clockField } from "../transport/index.js";
import type { Logger } from "../transport/logger.js";
import {
  anyText,
  boolean,
  DEFAULT_CLIENT_CONFIG,
  type Field,
  functionOf,
  having,
  integerFrom,
  list,
  message,
  type OptionsOf,
  oneOf,
  opaque,
  option,
  optional,
  optionTable,
  positive,
  text,
  value,
  withDefault,
} from "../wire/index.js";
import type { ClientConfig } from "../wire/records/session-types.js";
import { defaultModel } from "./default-model.js";
import type { DeviceSetting, Engine, GpuPrecision } from "./engine/engine.js";
import type { ModelSource } from "./model-source.js";
import { defaultLimits, type Limits } from "./server/http/limits.js";

/** Options of `startLocalBackend`: models, address, API keys, device and limits. */
export interface LocalBackendOptions {
  /** Port to listen on; 0, the default, takes a free one. With a port or host the server runs until it is closed. */
  readonly port?: number | undefined;
  /** Address to listen on, 127.0.0.1 by default; any that other machines can reach needs `apiKeys`. */
  readonly host?: string | undefined;
  /** Whether to open a socket; false leaves only `fetch`. */
  readonly listen?: boolean | undefined;
  /**
   * Where runs and checkpoints are kept. Without it, runs with a `folder` (`trainSupervised` and the like) are kept there,
   * and everything else in a temporary folder that `close` removes.
   */
  readonly dataDir?: string | undefined;
  /** Models to serve: folders or Hugging Face ids. Default: the package's own `tinkerts/nano`. */
  readonly models?: readonly ModelSource[] | undefined;
  /** Keys (`tml-...`) that clients must send. Each sees only its own sessions, runs and checkpoints, and published ones. */
  readonly apiKeys?: readonly string[] | undefined;
  /** Clients exchange their key for tokens (JWT) that end after an hour, as on the hosted service. */
  readonly tokens?: boolean | undefined;
  /**
   * Device to compute on. `auto`, the default, takes a GPU if `webgpu` is installed, a GPU is found and the models are large enough to gain from it.
   */
  readonly device?: DeviceSetting | undefined;
  /** Precision of matrix products on a GPU: `exact`, the default, in float32, or `fast`, on tensor cores in float16. */
  readonly precision?: GpuPrecision | undefined;
  /** Threads for matrix work on the CPU. */
  readonly threads?: number | undefined;
  /** Fused multiply-add: faster, but results then differ between kinds of machines in their last bits. */
  readonly relaxedSimd?: boolean | undefined;
  /** A session ends, and its models are freed, when its client is silent for this long. Default: 5 minutes. */
  readonly sessionTimeoutMs?: number | undefined;
  /** Web origins whose pages may use the server without a key, in addition to pages of this machine. */
  readonly corsOrigins?: readonly string[] | undefined;
  /** Whether clients may store custom losses on the server, where each then takes one pass. Default: true. */
  readonly customLosses?: boolean | undefined;
  readonly limits?: Partial<Limits> | undefined;
  /** Flags of `POST /api/v1/client/config`, over the defaults. */
  readonly clientConfig?: Partial<ClientConfig> | undefined;
  readonly logger?: Pick<Logger, "error" | "warn"> | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
  /**
   * For tests of the server: an engine of their own instead of one made from `models`; `close` closes it too.
   * @internal
   */
  readonly engine?: Engine | undefined;
  /**
   * Answers some requests itself, before they are taken for the API's: a page that is served beside it.
   * @internal
   */
  readonly beside?: ((request: Request) => Response | Promise<Response> | undefined) | undefined;
}

/** Some of a set of settings, each of the type that its default has. */
function someOf<T extends object>(defaults: T): Field<Partial<T>> {
  const fields = Object.entries(defaults).map(([name, standard]) => {
    const kind = typeof standard;
    const expected =
      { boolean: "true or false", number: "a number, 0 or more" }[kind as string] ?? `a ${kind}`;
    const holds = (given: unknown) => typeof given === kind && (typeof given !== "number" || given >= 0);
    return [name, optional(value(expected, holds))] as const;
  });
  return message(Object.fromEntries(fields)) as Field<unknown> as Field<Partial<T>>;
}

/** The options of the built-in backend that say where it computes. */
export const DEVICE_OPTIONS = {
  device: option(
    withDefault(oneOf("auto", "cpu", "gpu"), "auto"),
    "where the built-in backend computes: gpu needs `npm install webgpu`",
    { flag: true },
  ),
  precision: option(
    withDefault(oneOf("exact", "fast"), "exact"),
    "fast: float16 matrix products on the GPU's tensor cores",
    { flag: true },
  ),
} satisfies OptionsOf<Pick<LocalBackendOptions, "device" | "precision">>;

/** The options of `startLocalBackend`. */
export const BACKEND_OPTIONS = optionTable({
  port: option(withDefault(integerFrom(0, 65_535), 0), "port to listen on; 0 for any free port", {
    flag: true,
  }),
  host: option(withDefault(text, "127.0.0.1"), "address of this machine to listen on", { flag: true }),
  listen: option(withDefault(boolean, true), "open a socket"),
  dataDir: option(optional(text), "where runs and checkpoints are kept", {
    otherwise: "a temporary folder",
    flag: true,
    value: "folder",
  }),
  models: option(withDefault(list(opaque as Field<ModelSource>), [defaultModel]), "models to serve"),
  apiKeys: option(withDefault(list(anyText), []), "API keys (tml-...) that clients must send"),
  tokens: option(withDefault(boolean, false), "exchange keys for tokens that expire after an hour", {
    flag: true,
  }),
  ...DEVICE_OPTIONS,
  threads: option(optional(integerFrom(1, 64)), "threads for computing on the CPU", {
    otherwise: "one per core, at most 8",
    flag: true,
  }),
  relaxedSimd: option(optional(boolean), "fused multiply-add: faster, with other last bits"),
  sessionTimeoutMs: option(
    withDefault(positive, 5 * 60_000),
    "milliseconds of silence after which a session ends",
  ),
  corsOrigins: option(
    withDefault(list(anyText), []),
    "web origins whose pages may use the server, besides this machine's",
  ),
  customLosses: option(withDefault(boolean, true), "run custom losses on the server", {
    flag: "no-custom-losses",
  }),
  limits: option(withDefault(someOf(defaultLimits), {}), "bounds on what clients may ask for"),
  clientConfig: option(withDefault(someOf(DEFAULT_CLIENT_CONFIG), {}), "flags that clients are given"),
  logger: option(
    withDefault(having<Pick<Logger, "error" | "warn">>("a logger, as console is one", "warn"), console),
    "where problems are reported",
  ),
  clock: option(optional(clockField), "time, in place of the system's"),
  random: option(optional(functionOf<() => number>()), "source of random numbers"),
  engine: option(optional(opaque as Field<Engine>), "an engine in place of the one made from models"),
  beside: option(
    optional(functionOf<NonNullable<LocalBackendOptions["beside"]>>()),
    "answers some requests before they are taken for the API's",
  ),
} satisfies OptionsOf<LocalBackendOptions>);

/** The options of `startLocalBackend`, checked, with their defaults. */
export type FilledBackendOptions = ReturnType<(typeof BACKEND_OPTIONS)["check"]>;
