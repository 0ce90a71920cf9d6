import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ServiceClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";

/** A model of a few thousand random weights. */
export const TINY = "test/tiny";
const folder = fileURLToPath(new URL("../fixtures/engine/qwen3", import.meta.url));

/** The built-in backend with the tiny model, in this thread, and a client of it. */
export async function startTinyBackend(options: Pick<LocalBackendOptions, "customLosses"> = {}): Promise<{
  service: ServiceClient;
  dataDir: string;
  /** As a crash and a start on the same data: sessions, models in memory and requests under way are lost. */
  restart(): Promise<void>;
  close(): Promise<void>;
}> {
  const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-tiny-"));
  const start = async () => {
    const engine = await startEngine({ models: [{ name: TINY, path: folder }], threads: 1, inThread: true });
    return startLocalBackend({ ...options, engine, dataDir, listen: false, logger: silent });
  };
  let backend: LocalBackend | undefined = await start();
  const ask: typeof fetch = async (...request) => {
    if (backend === undefined) throw new TypeError("fetch failed");
    return backend.fetch(...request);
  };
  const { baseURL, apiKey } = backend;
  const service = new ServiceClient({ baseURL, apiKey, fetch: ask, logLevel: "off" });
  const stop = async () => {
    const stopped = backend;
    backend = undefined;
    await stopped?.close();
  };
  const restart = async () => {
    await stop();
    backend = await start();
  };
  const close = async () => {
    await service.close();
    await stop();
    await rm(dataDir, { recursive: true });
  };
  return { service, dataDir, restart, close };
}
