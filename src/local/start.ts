import { rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import type { Server as HttpServer, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createAdaptorServer } from "@hono/node-server";
import type { HubModelOptions } from "../checkpoints/hub-model.node.js";
import type { RunData } from "../clients/index.js";
import { messageOf, TinkerError } from "../errors.js";
import { type Clock, systemClock } from "../transport/clock.js";
import { isLoopbackHost } from "../transport/request-encoding.js";
import type { Engine, EngineDevice } from "./engine/engine.js";
import { modelCheck, startEngine } from "./engine/start-engine.node.js";
import { resolveModel } from "./model-source.js";
import { BACKEND_OPTIONS, type FilledBackendOptions, type LocalBackendOptions } from "./options.js";
import {
  createServer,
  type ImportAdapterOptions,
  refuseForeignHost,
  type ServerActivity,
} from "./server/index.js";
import { closeHttp, listen } from "./socket.js";
import { type ImportedAdapter, openStore, type Store } from "./store/index.js";
import { WorkUnderWay } from "./work-under-way.js";

/**
 * A running server. `new ServiceClient(backend)` uses it, and the last such client closes it with itself; with
 * `new ServiceClient({ ...backend })` it stays open.
 */
export interface LocalBackend extends AsyncDisposable {
  readonly baseURL: string;
  /** The first of `apiKeys`, or a placeholder where none is needed. */
  readonly apiKey: string;
  /** Answers a request without a socket. */
  readonly fetch: typeof fetch;
  readonly dataDir: string;
  /** Device that the backend computes on. */
  readonly device: EngineDevice;
  /**
   * Activity of the server, for the dashboard.
   * @internal
   */
  readonly activity: ServerActivity;
  /**
   * Runs whose weights are in their run folders; undefined with keys, which have owners.
   * @internal
   */
  readonly runData: RunData | undefined;
  /**
   * Makes a checkpoint of a PEFT adapter that another program trained, to sample from and to train on. Importing the same
   * files again gives the same checkpoint. With `apiKeys`, it belongs to the first key.
   */
  importAdapter(folder: string, options?: ImportAdapterOptions): Promise<ImportedAdapter>;
  /** Stops the server and abandons running work. */
  close(): Promise<void>;
}

const PLACEHOLDER_KEY = "tml-local";
const CLOSED =
  "The backend is closed. The last client that was handed a backend closes it with itself; clients of a copy do not: new ServiceClient({ ...backend }).";
const MAX_UPLOAD_MS = 15 * 60_000;

/**
 * Starts a Tinker server in this process: real training, real checkpoints, reachable from this machine alone by default. A program may end without closing it: an unused server keeps no process alive.
 */
export async function startLocalBackend(options: LocalBackendOptions = {}): Promise<LocalBackend> {
  const settings = BACKEND_OPTIONS.check(options, "startLocalBackend");
  const { host, apiKeys, logger, corsOrigins, sessionTimeoutMs, limits } = settings;
  if (settings.listen && apiKeys.length === 0 && !isLoopbackHost(host)) {
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
    const clock = settings.clock ?? systemClock;
    const dataDir = settings.dataDir ?? (await temporaryFolder(closers));
    const store = await openStore(dataDir, { wallNow: () => clock.wallNow() });
    closers.push(() => store.close());
    const engine = settings.engine ?? (await engineFor(settings, clock));
    closers.push(() => engine.close());
    const server = await createServer({
      engine,
      store,
      clock,
      random: settings.random ?? Math.random,
      logger,
      apiKeys,
      origins: corsOrigins,
      sessionTimeoutMs,
      limits,
      clientConfig: {
        pjwtAuthEnabled: settings.tokens,
        customLossServerSide: settings.customLosses,
        ...settings.clientConfig,
      },
    });
    const work = new WorkUnderWay();
    const handle = async (request: Request, address?: string) =>
      settings.beside?.(request) ?? server.fetch(request, { address });
    let baseURL = "http://localhost";
    if (settings.listen) {
      const isOpen = apiKeys.length > 0 || corsOrigins.includes("*");
      const http = createAdaptorServer({
        fetch: (request, { incoming }) =>
          (isOpen ? undefined : refuseForeignHost(request)) ?? handle(request, incoming.socket.remoteAddress),
      }) as HttpServer;
      // For the request alone, however long its answer takes; a body that stands still is given up much sooner.
      http.requestTimeout = MAX_UPLOAD_MS;
      http.keepAliveTimeout = 60_000;
      http.on("connection", (socket: Socket) => socket.unref());
      http.on("request", (_, response: ServerResponse) => response.once("close", work.begin()));
      const port = await listen(http, settings.port, host);
      baseURL = `http://${host.includes(":") ? `[${host}]` : anyAddress(host) ? "127.0.0.1" : host}:${port}`;
      closers.push(() => closeHttp(http));
      if (options.port === undefined && options.host === undefined) http.unref();
    }
    // Last in, first closed: polls are answered before their connections go.
    closers.push(() => server.close());
    // Comes when nothing is left to do: what is only in memory is written, and the folder is free for the next program.
    const closeAtEnd = () =>
      void close().catch((error: unknown) =>
        logger.error(`The backend could not be closed: ${messageOf(error)}`),
      );
    process.once("beforeExit", closeAtEnd);
    closers.push(async () => process.removeListener("beforeExit", closeAtEnd));
    let closing: Promise<void> | undefined;
    const close = () => (closing ??= closeAll());
    const ask: typeof fetch = async (input, init) => {
      if (closing !== undefined) throw new TinkerError(CLOSED);
      return work.during(() => handle(new Request(input, init)));
    };
    const importInto = (folder: string, given: ImportAdapterOptions = {}) =>
      closing === undefined ? server.importAdapter(folder, given) : Promise.reject(new TinkerError(CLOSED));
    // On the prototype: a copy, `{ ...backend }`, can use the server and does not own it.
    const owner = { close, [Symbol.asyncDispose]: close };
    return Object.assign(Object.create(owner) as typeof owner, {
      baseURL,
      apiKey: apiKeys[0] ?? PLACEHOLDER_KEY,
      dataDir: store.folder.path,
      device: await engine.device(),
      activity: server.activity,
      runData: apiKeys.length > 0 ? undefined : runDataOf(store, settings.dataDir !== undefined, importInto),
      importAdapter: importInto,
      fetch: ask,
    });
  } catch (error) {
    await closeAll().catch(() => undefined);
    throw error;
  }
}

function runDataOf(
  { runs, checkpoints }: Store,
  lasts: boolean,
  importInto: RunData["importAdapter"],
): RunData {
  return {
    importAdapter: importInto,
    open: async (folder) => checkpoints.load(await runs.load(resolve(folder))),
    keep: lasts ? undefined : (runId, folder) => runs.moveTo(resolve(folder), runId),
  };
}

function anyAddress(host: string): boolean {
  return host === "0.0.0.0";
}

async function engineFor(options: FilledBackendOptions, clock: Clock): Promise<Engine> {
  const { device, precision } = options;
  const models = await Promise.all(options.models.map((source) => resolveModel(source, hubOptions(options))));
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

/** A download of gigabytes is announced; a model this engine cannot run is not downloaded. */
function hubOptions({ device, logger }: FilledBackendOptions): HubModelOptions {
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
