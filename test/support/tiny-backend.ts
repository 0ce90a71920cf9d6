import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ServiceClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/index.js";
import { startLocalBackend } from "../../src/local/index.js";

/** A model of a few thousand random weights. */
export const TINY = "test/tiny";
const folder = fileURLToPath(new URL("../fixtures/engine/qwen3", import.meta.url));

/** The built-in backend with the tiny model, in this thread, and a client of it. */
export async function startTinyBackend(): Promise<{ service: ServiceClient; close(): Promise<void> }> {
  const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-tiny-"));
  const engine = await startEngine({ models: [{ name: TINY, path: folder }], threads: 1, inThread: true });
  const backend = await startLocalBackend({ engine, dataDir, listen: false });
  const service = new ServiceClient(backend);
  const close = async () => {
    await service.close();
    await backend.close();
    await rm(dataDir, { recursive: true });
  };
  return { service, close };
}
