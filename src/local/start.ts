import { rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import type { Server as HttpServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAdaptorServer } from "@hono/node-server";
import { TinkerError } from "../errors.js";
import { type Clock, systemClock } from "../transport/clock.js";
import type { Logger } from "../transport/logger.js";
import type { ClientConfig } from "../wire/records/session-types.js";
import { defaultModel } from "./default-model.js";
import type { DeviceSetting, Engine, EngineDevice, GpuPrecision } from "./engine/engine.js";
import { modelCheck, startEngine } from "./engine/start-engine.node.js";
import type { HubModelOptions } from "./hub-model.js";
import { type ModelSource, resolveModel } from "./model-source.js";
import { createServer, type Limits, refuseForeignHost, type ServerActivity } from "./server/index.js";
import { closeHttp, listen } from "./socket.js";
import { openStore } from "./store/index.js";

/** What a built-in backend serves, where, and to whom. */
export interface LocalBackendOptions {
  /** 0, the default, takes a free one. */
  readonly port?: number;
  /** 127.0.0.1 by default; any address that other machines can reach needs `apiKeys`. */
  readonly host?: string;
  /** false: no socket at all, `fetch` only. */
  readonly listen?: boolean;
  /** Where runs and checkpoints are kept; without it a temporary folder that `close` removes. */
  readonly dataDir?: string;
  /** Folders or Hugging Face ids; the package's own `tinkerts/nano` by default. */
  readonly models?: readonly ModelSource[];
  /** Keys (`tml-...`) that clients must send. Each sees only its own sessions, runs and checkpoints, and published ones. */
  readonly apiKeys?: readonly string[];
  /** Clients exchange their key for tokens (JWT) that end after an hour, as on the hosted service. */
  readonly tokens?: boolean;
  /**
   * Where to compute. `auto`, the default, takes a graphics card where `webgpu` is installed, there is a card and the
   * models are large enough to gain from it.
   */
  readonly device?: DeviceSetting;
  /** Of products on a graphics card: `exact`, the default, in float32, or `fast`, on tensor cores in float16. */
  readonly precision?: GpuPrecision;
  /** Threads for matrix work on the CPU. */
  readonly threads?: number;
  /** Fused multiply-add: faster, but results then differ between kinds of machines in their last bits. */
  readonly relaxedSimd?: boolean;
  /** A session whose client is silent for this long is over, and its models are freed; 5 minutes. */
  readonly sessionTimeoutMs?: number;
  /** Web origins whose pages may use the server without a key, besides pages of this machine. */
  readonly corsOrigins?: readonly string[];
  readonly limits?: Partial<Limits>;
  /** Flags of `POST /api/v1/client/config`, over the defaults. */
  readonly clientConfig?: Partial<ClientConfig>;
  readonly logger?: Pick<Logger, "error" | "warn">;
  readonly clock?: Clock;
  readonly random?: () => number;
  /**
   * For tests of the server: an engine of their own instead of one made from `models`; `close` closes it too.
   * @internal
   */
  readonly engine?: Engine;
  /**
   * Answers some requests itself, before they are taken for the API's: a page that is served beside it.
   * @internal
   */
  readonly beside?: (request: Request) => Response | Promise<Response> | undefined;
}

/** A running server; `new ServiceClient(backend)` uses it. */
export interface LocalBackend extends AsyncDisposable {
  readonly baseURL: string;
  /** The first of `apiKeys`, or a placeholder where none is needed. */
  readonly apiKey: string;
  /** Answers a request without a socket. */
  readonly fetch: typeof fetch;
  readonly dataDir: string;
  /** Where it computes. */
  readonly device: EngineDevice;
  /**
   * What happens in it, for those who show it.
   * @internal
   */
  readonly activity: ServerActivity;
  close(): Promise<void>;
}

const PLACEHOLDER_KEY = "tml-local";
const SESSION_TIMEOUT_MS = 5 * 60_000;
const MAX_UPLOAD_MS = 15 * 60_000;
const LOOPBACK_HOST = /^(localhost|127(\.\d{1,3}){3}|::1)$/;

/** Whether a server that listens on this host can be reached from this machine alone. */
export function isLoopback(host: string): boolean {
  return LOOPBACK_HOST.test(host);
}

/** Starts a Tinker server in this process: real training, real checkpoints, on this machine alone unless told otherwise. */
export async function startLocalBackend(options: LocalBackendOptions = {}): Promise<LocalBackend> {
  const host = options.host ?? "127.0.0.1";
  const apiKeys = options.apiKeys ?? [];
  const listens = options.listen ?? true;
  if (listens && apiKeys.length === 0 && !isLoopback(host)) {
    throw new TinkerError(
      `Listening on ${host} lets other machines in, which needs an API key: give apiKeys, or leave host out to stay on this machine.`,
    );
  }
  const closers: (() => Promise<unknown>)[] = [];
  const closeAll = async () => {
    const failures: unknown[] = [];
    // A disk that is full must not leave the engine running, nor the port and the folder taken.
    for (const close of closers.splice(0).reverse()) await close().catch((error) => failures.push(error));
    if (failures.length > 0) throw failures[0];
  };
  try {
    const clock = options.clock ?? systemClock;
    const dataDir = options.dataDir ?? (await temporaryFolder(closers));
    const store = await openStore(dataDir, { wallNow: () => clock.wallNow() });
    closers.push(() => store.close());
    const engine = options.engine ?? (await engineFor(options, clock));
    closers.push(() => engine.close());
    const server = await createServer({
      engine,
      store,
      clock,
      random: options.random ?? Math.random,
      logger: options.logger ?? console,
      apiKeys,
      origins: options.corsOrigins ?? [],
      sessionTimeoutMs: options.sessionTimeoutMs ?? SESSION_TIMEOUT_MS,
      limits: options.limits ?? {},
      clientConfig: { pjwtAuthEnabled: options.tokens ?? false, ...options.clientConfig },
    });
    const handle = async (request: Request) => options.beside?.(request) ?? server.fetch(request);
    let baseURL = "http://localhost";
    if (listens) {
      const isOpen = apiKeys.length > 0 || options.corsOrigins?.includes("*") === true;
      const http = createAdaptorServer({
        fetch: (request) => (isOpen ? undefined : refuseForeignHost(request)) ?? handle(request),
      }) as HttpServer;
      // For the request alone, however long its answer takes; a body that stands still is given up much sooner.
      http.requestTimeout = MAX_UPLOAD_MS;
      http.keepAliveTimeout = 60_000;
      const port = await listen(http, options.port ?? 0, host);
      baseURL = `http://${host.includes(":") ? `[${host}]` : anyAddress(host) ? "127.0.0.1" : host}:${port}`;
      closers.push(() => closeHttp(http));
    }
    // Last in, first closed: polls are answered before their connections go.
    closers.push(() => server.close());
    return {
      baseURL,
      apiKey: apiKeys[0] ?? PLACEHOLDER_KEY,
      dataDir: store.folder.path,
      device: await engine.device(),
      activity: server.activity,
      fetch: (input, init) => handle(new Request(input, init)),
      close: closeAll,
      [Symbol.asyncDispose]: closeAll,
    };
  } catch (error) {
    await closeAll().catch(() => undefined);
    throw error;
  }
}

function anyAddress(host: string): boolean {
  return host === "0.0.0.0";
}

async function engineFor(options: LocalBackendOptions, clock: Clock): Promise<Engine> {
  const { device = "auto", precision = "exact" } = options;
  checkChoice("device", device, ["auto", "cpu", "gpu"]);
  checkChoice("precision", precision, ["exact", "fast"]);
  const logger = options.logger ?? console;
  const models = await Promise.all(
    (options.models ?? [defaultModel]).map((source) => resolveModel(source, hubOptions(options, logger))),
  );
  for (const [index, { name }] of models.entries()) {
    if (models.findIndex((other) => other.name === name) === index) continue;
    throw new Error(`Two models are called ${name}: give one of the folders another name.`);
  }
  const engineOptions = {
    models: models.map(({ name, path }) => ({ name, path })),
    device,
    precision,
    ...(options.threads === undefined ? {} : { threads: options.threads }),
    ...(options.relaxedSimd === undefined ? {} : { relaxedSimd: options.relaxedSimd }),
  };
  return startEngine(engineOptions, clock);
}

function checkChoice<T extends string>(option: string, given: T, choices: readonly T[]): void {
  if (choices.includes(given)) return;
  throw new TinkerError(`${option} must be one of ${choices.join(", ")}, got ${JSON.stringify(given)}.`);
}

/** A download of gigabytes is announced; a model this engine cannot run is not downloaded. */
function hubOptions({ device }: LocalBackendOptions, logger: Pick<Logger, "warn">): HubModelOptions {
  let isAnnounced = false;
  return {
    check: modelCheck(device),
    onProgress: ({ name, totalBytes }) => {
      if (isAnnounced) return;
      isAnnounced = true;
      const size = totalBytes === undefined ? "" : ` (${Math.ceil(totalBytes / 1e6)} MB)`;
      logger.warn(`Downloading ${name}${size} from the Hugging Face hub; the next start finds it on disk.`);
    },
  };
}

async function temporaryFolder(closers: (() => Promise<unknown>)[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "tinkerts-"));
  const removeAtExit = () => rmSync(folder, { recursive: true, force: true });
  process.once("exit", removeAtExit);
  closers.push(async () => {
    process.removeListener("exit", removeAtExit);
    await rm(folder, { recursive: true, force: true });
  });
  return folder;
}
