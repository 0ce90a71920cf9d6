// The backend under attack, in a process of its own: whatever is done to it, the attacker lives to tell.
import { startLocalBackend } from "../../../dist/local/index.js";

const settings = JSON.parse(process.argv[2]);
const failures = [];
const backend = await startLocalBackend({
  dataDir: settings.dataDir,
  apiKeys: settings.apiKeys,
  threads: 1,
  sessionTimeoutMs: 3_600_000,
  limits: { bodyIdleMs: settings.bodyIdleMs },
  logger: { error: (line) => failures.push(line), warn: () => {} },
});
process.on("message", async (message) => {
  if (message === "close") {
    await backend.close();
    process.exit(0);
  }
  globalThis.gc();
  await new Promise((resolve) => setImmediate(resolve));
  globalThis.gc();
  const { rss, heapUsed, external } = process.memoryUsage();
  process.send({ rss, heapBytes: heapUsed + external, failures: failures.splice(0) });
});
process.send({ baseURL: backend.baseURL });
