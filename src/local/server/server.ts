import { mkdir, rm } from "node:fs/promises";
import {
  addAnthropicRoutes,
  addOpenAiRoutes,
  anthropicDialect,
  type ChatHost,
  openAiDialect,
  ResponseStore,
} from "../../chat-api/index.js";
import type { Clock } from "../../transport/clock.js";
import type { Logger } from "../../transport/logger.js";
import { endpoints } from "../../wire/endpoints/index.js";
import type { ClientConfig } from "../../wire/records/session-types.js";
import type { Engine } from "../engine/engine.js";
import type { ImportedAdapter } from "../store/import-adapter.js";
import type { Store } from "../store/store.js";
import { tokenizersOf } from "../tokenizer.js";
import { auditTrail } from "./access/audit-trail.js";
import { addClientRoutes } from "./access/client-routes.js";
import { Identities } from "./access/identity.js";
import { UrlSigner } from "./access/url-signer.js";
import { Activity, runEndOf, type ServerActivity } from "./activity.js";
import { addAdminRoutes } from "./admin/admin-routes.js";
import { chatModelsOf } from "./chat/models.js";
import { textModels } from "./chat/text-models.js";
import { addCopyRoute } from "./checkpoints/copy-route.js";
import { DiskQuota } from "./checkpoints/disk-quota.js";
import { addDownloadRoutes } from "./checkpoints/download-routes.js";
import { readCheckpoint, tinkerPath } from "./checkpoints/find-checkpoint.js";
import { addImportRoute, type ImportAdapterOptions, importFromFolder } from "./checkpoints/import.js";
import { addRunRoutes } from "./checkpoints/run-routes.js";
import { addTokenizerRoute } from "./checkpoints/tokenizer-route.js";
import { addFutureRoutes } from "./futures/future-routes.js";
import { type Failure, FutureStore } from "./futures/future-store.js";
import { createApp } from "./http/app.js";
import { readJsonObject } from "./http/body.js";
import { toHttpError } from "./http/http-error.js";
import { defaultLimits, type Limits } from "./http/limits.js";
import { OwnerShares } from "./http/owner-shares.js";
import { type AppEnv, type Connection, routesOf } from "./http/route.js";
import { AdapterPool } from "./sampling/adapter-pool.js";
import { SampleRuns } from "./sampling/sample-runs.js";
import { addSamplingRoutes } from "./sampling/sampling-routes.js";
import { SamplingSessions } from "./sampling/sampling-sessions.js";
import { addStreamRoute } from "./sampling/stream-route.js";
import type { Services } from "./services.js";
import { LiveModels } from "./sessions/live-models.js";
import {
  type LiveModel,
  type LiveSession,
  LiveSessions,
  type StateSource,
} from "./sessions/live-sessions.js";
import { addSessionRoutes } from "./sessions/session-routes.js";
import { addCustomLossRoute } from "./training/custom-losses.js";
import { addTrainingRoutes } from "./training/training-routes.js";
import { addWeightsRoutes } from "./training/weights-routes.js";

/** Options of a server. */
export interface ServerOptions {
  readonly engine: Engine;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Pick<Logger, "error" | "warn">;
  /** Without keys, everyone who can reach the server may use it and sees everything. */
  readonly apiKeys: readonly string[];
  /** Web origins whose pages may use a server without keys, besides those of this machine; "*" for all. */
  readonly origins: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly limits: Partial<Limits>;
  /** Flags sent to clients, over the defaults. */
  readonly clientConfig: Partial<ClientConfig>;
}

/** A server without a socket. */
export interface Server {
  fetch(request: Request, connection?: Connection): Response | Promise<Response>;
  readonly activity: ServerActivity;
  /** Makes a checkpoint of the adapter in a folder. */
  importAdapter(folder: string, options: ImportAdapterOptions): Promise<ImportedAdapter>;
  close(): Promise<void>;
}

const SWEEP_INTERVAL_MS = 5_000;
const CLOSING_GRACE_MS = 1_000;

const DEFAULT_CLIENT_CONFIG: Partial<ClientConfig> = {
  pjwtAuthEnabled: false,
  credentialDefaultSource: "api_key",
  parallelFwdbwdChunks: true,
  protoCompressFwdbwd: false,
  fwdbwdMaxChunkLen: 1024,
  fwdbwdMaxChunkBytesCount: 5_000_000,
  sampleMaxConcurrentRequests: 2000,
  sampleUseRetrieveFutures: false,
  // Otherwise clones of a sampler take random numbers up to 10^18, which few JSON readers keep exact.
  sampleJoinSamplingSession: true,
  createModelViaLoadWeights: false,
  customLossServerSide: true,
};

/** The Tinker server as a function from request to response, over an engine and a store that the caller owns. */
export async function createServer(options: ServerOptions): Promise<Server> {
  const { engine, store, clock, logger } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const clientConfig = { ...DEFAULT_CLIENT_CONFIG, ...options.clientConfig };
  const tokens = clientConfig.pjwtAuthEnabled === true;
  const identities = new Identities({ apiKeys: options.apiKeys, secret: store.secret, tokens, clock });
  for (const [former, owner] of identities.formerOwners()) await store.renameOwner(former, owner);
  const shared = (limit: number) => new OwnerShares(options.apiKeys.length, limit);
  const futures = new FutureStore(clock, limits, shared(limits.resultBytes));
  const spillFolder = store.folder.join("spill");
  await rm(spillFolder, { recursive: true, force: true });
  await mkdir(spillFolder, { mode: 0o700 });
  const sessions: LiveSessions = new LiveSessions({
    store,
    clock,
    limits,
    shared,
    timeoutMs: options.sessionTimeoutMs,
    onPause: (session) => sampleRuns.pauseSession(session),
    onEnd: (session, failure) => endSession(session, failure),
  });
  const activity = new Activity(clock);
  const restore = async (model: LiveModel, source: StateSource) => {
    if (source.type === "created")
      return engine.createAdapter(model.adapterId, model.info.name, model.run.lora);
    const state = await readCheckpoint(store, source.record);
    return engine.importAdapter(model.adapterId, model.info.name, state, { optimizer: source.optimizer });
  };
  const models = new LiveModels({ sessions, store, clock, futures, limits, shared, activity, restore });
  const disk = new DiskQuota({ store, owners: options.apiKeys.length, diskBytes: limits.diskBytes });
  const adapters = new AdapterPool(engine, spillFolder, limits.loadedSamplers, disk);
  const samplingSessions = new SamplingSessions({ store, clock, limits, sessions, adapters });
  const timeoutMs = options.sessionTimeoutMs;
  const sampleRuns = new SampleRuns({
    engine,
    store,
    clock,
    futures,
    limits,
    shared,
    adapters,
    timeoutMs,
    activity,
  });
  const audit = auditTrail(store.audit, clock);
  engine.onLost((error) => {
    logger.error(error.message);
    adapters.lose();
    models.lose(error.reason).catch((failure: unknown) => {
      logger.error(`A run that lost its work could not be marked: ${String(failure)}`);
    });
  });

  /** The engine frees a model behind what it is doing; a server that is being closed does not wait for that. */
  async function endSession(session: LiveSession, failure: Failure): Promise<void> {
    for (const model of session.models.values()) {
      model.turns.close(failure);
      activity.ended(model.run.id, runEndOf(session.record.status, isClosed));
    }
    await Promise.race([free(session, failure), graceOver]);
    session.models.clear();
  }

  async function free(session: LiveSession, failure: Failure): Promise<void> {
    sampleRuns.endSession(session, failure);
    await samplingSessions.endSession(session);
    for (const model of session.models.values()) {
      await model.turns.whenIdle();
      await engine.removeAdapter(model.adapterId).catch(() => undefined);
    }
  }

  async function sweep(lateMs: number): Promise<void> {
    futures.sweep();
    sampleRuns.expire(lateMs);
    await sessions.expire(lateMs);
    for (const record of await store.checkpoints.removeExpired()) {
      const run = store.runs.get(record.runId);
      const owner = run?.owner ?? "local";
      await audit({ owner }, "checkpoints.expired", {
        modelId: record.runId,
        tinkerPath: tinkerPath(record),
      });
    }
    await store.flush();
  }

  let isClosed = false;
  let endGrace = () => {};
  const graceOver = new Promise<void>((resolve) => {
    endGrace = resolve;
  });
  let sweeping = Promise.resolve();
  let cancelSweep = () => {};
  const scheduleSweep = () => {
    const dueAt = clock.now() + SWEEP_INTERVAL_MS;
    cancelSweep = clock.setTimer(
      () => {
        // While the process was stopped or the machine slept, no signs of life could arrive.
        sweeping = sweep(Math.max(0, clock.now() - dueAt))
          .catch((error: unknown) => logger.error(`The periodic clean-up failed: ${String(error)}`))
          .then(() => {
            if (!isClosed) scheduleSweep();
          });
      },
      SWEEP_INTERVAL_MS,
      { background: true },
    );
  };
  scheduleSweep();

  const services: Services = {
    engine,
    store,
    clock,
    activity,
    random: options.random,
    limits,
    reader: { limits, clock, bodies: shared(limits.arrivingBytes) },
    baseModels: new Map((await engine.models()).map((model) => [model.name, model])),
    clientConfig,
    identities,
    signer: new UrlSigner(() => clock.wallNow()),
    audit,
    disk,
    futures,
    sessions,
    models,
    samplingSessions,
    sampleRuns,
    tokenizerOf: tokenizersOf(),
    textModelOf: textModels(),
  };
  const app = createApp({
    clock,
    logger,
    origins: options.origins,
    keysRequired: identities.keysRequired,
    identify: (call) => identities.ofCall(call),
    isClosing: () => futures.isClosed,
    dialects: [openAiDialect, anthropicDialect],
    addOpenRoutes(open) {
      routesOf(open, services.reader)(endpoints.health, () => ({ status: "ok" }));
      addDownloadRoutes(open, services);
    },
  });
  const route = routesOf(app, services.reader);
  addClientRoutes(route, services);
  addTokenizerRoute(app, services);
  addSessionRoutes(route, services);
  addTrainingRoutes(app, route, services);
  addCustomLossRoute(route, services);
  addWeightsRoutes(route, services);
  addSamplingRoutes(route, services);
  addStreamRoute(route, services);
  addFutureRoutes(route, services);
  addRunRoutes(app, route, services);
  addCopyRoute(route, services);
  addImportRoute(app, services);
  addAdminRoutes(route, services);
  const chatHost: ChatHost<AppEnv> = {
    app,
    clock,
    models: (call) => chatModelsOf(services, call.get("identity")),
    readJson: async (call) => (await readJsonObject(call, services.reader)).value,
    toHttpError,
    storedResponses: new ResponseStore(clock, limits),
    ownerOf: (call) => call.get("identity").owner,
  };
  addOpenAiRoutes(chatHost);
  addAnthropicRoutes(chatHost);
  return {
    fetch: (request, connection = {}) => app.fetch(request, connection),
    activity: {
      status: () =>
        activity.status({
          trainingRequests: () => sessions.trainingRequests,
          sequences: () => sampleRuns.sequences,
        }),
      subscribe: (listener) => activity.subscribe(listener),
    },
    importAdapter: (folder, given) => importFromFolder(services, folder, given),
    async close() {
      if (isClosed) return;
      isClosed = true;
      cancelSweep();
      await sweeping;
      futures.close();
      sampleRuns.close();
      const cancelGrace = clock.setTimer(endGrace, CLOSING_GRACE_MS, { background: true });
      try {
        await sessions.close();
      } finally {
        cancelGrace();
        await rm(spillFolder, { recursive: true, force: true });
      }
    },
  };
}
