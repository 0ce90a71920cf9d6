import { mkdir, rm } from "node:fs/promises";
import type { Clock } from "../../transport/clock.js";
import type { Logger } from "../../transport/logger.js";
import type { Engine } from "../engine/engine.js";
import type { Store } from "../store/store.js";
import { createApp } from "./app.js";
import { audit, type Core, tinkerPath } from "./core.js";
import { type Failure, FutureStore } from "./future-store.js";
import { Identities } from "./identity.js";
import { defaultLimits, type Limits } from "./limits.js";
import { Samplers } from "./samplers.js";
import { type LiveSession, Sessions } from "./sessions.js";
import { UrlSigner } from "./url-signer.js";

export type ClientConfig = Readonly<Record<string, boolean | number | string>>;

export interface ServerOptions {
  readonly engine: Engine;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Pick<Logger, "error" | "warn">;
  /** None: everybody who can reach the server may use it and sees everything. */
  readonly apiKeys: readonly string[];
  /** Web origins whose pages may use a server without keys, besides those of this machine; "*" for all. */
  readonly origins: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly limits: Partial<Limits>;
  /** Flags sent to clients, over the defaults. */
  readonly clientConfig: ClientConfig;
}

export interface Server {
  fetch(request: Request): Response | Promise<Response>;
  close(): Promise<void>;
}

const SWEEP_INTERVAL_MS = 5_000;
const CLOSING_GRACE_MS = 1_000;

const DEFAULT_CLIENT_CONFIG: ClientConfig = {
  pjwt_auth_enabled: false,
  credential_default_source: "api_key",
  parallel_fwdbwd_chunks: true,
  proto_compress_fwdbwd: false,
  fwdbwd_max_chunk_len: 1024,
  fwdbwd_max_chunk_bytes_count: 5_000_000,
  sample_max_concurrent_requests: 2000,
  sample_use_retrieve_futures: false,
  // Otherwise clones of a sampler take random numbers up to 10^18, which few JSON readers keep exact.
  sample_join_sampling_session: true,
  create_model_via_load_weights: false,
  custom_loss_server_side: false,
};

/** The Tinker server as a function from request to response, over an engine and a store that the caller owns. */
export async function createServer(options: ServerOptions): Promise<Server> {
  const { engine, store, clock, logger } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const futures = new FutureStore(clock, limits);
  const spillFolder = store.folder.join("spill");
  await rm(spillFolder, { recursive: true, force: true });
  await mkdir(spillFolder, { mode: 0o700 });
  const sessions: Sessions = new Sessions({
    store,
    clock,
    limits,
    timeoutMs: options.sessionTimeoutMs,
    onEnd: (session, failure) => endSession(session, failure),
  });
  const samplers = new Samplers({ engine, store, clock, futures, limits, sessions, spillFolder });
  const core: Core = {
    engine,
    models: new Map((await engine.models()).map((model) => [model.name, model])),
    store,
    clock,
    random: options.random,
    limits,
    identities: new Identities(options.apiKeys, () => clock.wallNow()),
    signer: new UrlSigner(() => clock.wallNow()),
    futures,
    sessions,
    samplers,
    budget: { queuedBytes: 0 },
    bodies: { bytes: 0 },
    clientConfig: { ...DEFAULT_CLIENT_CONFIG, ...options.clientConfig },
  };

  /** The engine frees a model behind what it is doing; a server that is being closed does not wait for that. */
  async function endSession(session: LiveSession, failure: Failure): Promise<void> {
    for (const model of session.models.values()) model.queue.close(failure);
    await Promise.race([free(session, failure), graceOver]);
    session.models.clear();
  }

  async function free(session: LiveSession, failure: Failure): Promise<void> {
    await samplers.endSession(session, failure);
    for (const model of session.models.values()) {
      await model.queue.whenIdle();
      await engine.removeAdapter(model.adapterId).catch(() => undefined);
    }
  }

  async function sweep(): Promise<void> {
    futures.sweep();
    await sessions.expire();
    for (const record of await store.checkpoints.removeExpired()) {
      const run = store.runs.get(record.runId);
      const owner = { owner: run?.owner ?? "local", seesAll: false };
      await audit(core, owner, "checkpoints.expired", {
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
    cancelSweep = clock.setTimer(
      () => {
        sweeping = sweep()
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

  const app = createApp(core, { origins: options.origins, logger });
  return {
    fetch: (request) => app.fetch(request),
    async close() {
      if (isClosed) return;
      isClosed = true;
      cancelSweep();
      await sweeping;
      futures.close();
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
