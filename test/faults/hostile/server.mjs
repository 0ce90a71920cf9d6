// The backend under attack, in a process of its own: whatever is done to it, the attacker lives to tell.
import { readFileSync } from "node:fs";
import { startLocalBackend } from "../../../dist/local/index.js";

const settings = JSON.parse(process.argv[2]);
const failures = [];
const backend = await startLocalBackend({
  dataDir: settings.dataDir,
  apiKeys: settings.apiKeys,
  models: settings.models,
  threads: 1,
  sessionTimeoutMs: 3_600_000,
  limits: settings.limits,
  logger: { error: (line) => failures.push(line), warn: () => {} },
});
// The longest time for which the server's thread computed without serving anybody: of other programs on the machine it knows nothing.
let lastCpuMs = cpuMs();
let longestStretchMs = 0;
setInterval(() => {
  const now = cpuMs();
  longestStretchMs = Math.max(longestStretchMs, now - lastCpuMs);
  lastCpuMs = now;
}, 2).unref();

function cpuMs() {
  try {
    return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ")[0]) / 1e6;
  } catch {
    return Number.NaN;
  }
}

process.on("message", async (message) => {
  if (message === "close") {
    await backend.close();
    process.exit(0);
  }
  const stretchMs = Math.round(longestStretchMs);
  globalThis.gc();
  await new Promise((resolve) => setImmediate(resolve));
  globalThis.gc();
  const { rss, heapUsed, external } = process.memoryUsage();
  const peakRss = process.resourceUsage().maxRSS * 1024;
  process.send({ rss, peakRss, heapBytes: heapUsed + external, stretchMs, failures: failures.splice(0) });
  lastCpuMs = cpuMs();
  longestStretchMs = 0;
});
process.on("disconnect", () => process.exit(1));
process.send({ baseURL: backend.baseURL });
