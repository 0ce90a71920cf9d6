// The built-in backend in a process of its own, which counts how long its engine works. A line on the standard input
// asks for what was counted since the last one, and for what it keeps in memory.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { startEngine } from "../../dist/local/engine/start-engine.node.js";
import { defaultModel, startLocalBackend } from "../../dist/local/index.js";
import { TINY_MODEL, writeTinyModel } from "../../test/faults/shared/tiny-model.mjs";

const WORK = new Set(["forwardBackward", "optimStep", "exportAdapter", "cloneAdapter", "sample"]);

let running = 0;
let busySinceMs = 0;
let counted = { busyMs: 0, firstMs: undefined, lastMs: undefined };

function begin() {
  const now = performance.now();
  counted.firstMs ??= now;
  if (running === 0) busySinceMs = now;
  running += 1;
}

function end() {
  const now = performance.now();
  running -= 1;
  if (running === 0) counted.busyMs += now - busySinceMs;
  counted.lastMs = now;
}

const tinyFolder = mkdtempSync(join(tmpdir(), "tinkerts-tiny-"));
await writeTinyModel(tinyFolder);
const models = [defaultModel, { name: TINY_MODEL, path: tinyFolder }];
// One thread for the engine: what is measured is whether it has work, not how fast it does it.
const engine = await startEngine({ models, threads: 1 });
const watched = new Proxy(engine, {
  get(target, name) {
    const value = target[name];
    if (typeof value !== "function") return value;
    if (!WORK.has(name)) return value.bind(target);
    return (...args) => {
      begin();
      return value.apply(target, args).finally(end);
    };
  },
});
const backend = await startLocalBackend({ engine: watched });
console.log(JSON.stringify({ baseURL: backend.baseURL, apiKey: backend.apiKey }));
createInterface({ input: process.stdin })
  .on("line", async () => {
    const { busyMs, firstMs = 0, lastMs = 0 } = counted;
    counted = { busyMs: 0, firstMs: undefined, lastMs: undefined };
    globalThis.gc();
    // What has finalizers is free after they ran.
    await new Promise((resolve) => setImmediate(resolve));
    globalThis.gc();
    const { heapUsed, external, rss } = process.memoryUsage();
    const memory = { keptBytes: heapUsed + external, rssBytes: rss };
    console.log(JSON.stringify({ busyMs, wallMs: lastMs - firstMs, memory }));
  })
  .on("close", async () => {
    await backend.close();
    rmSync(tinyFolder, { recursive: true, force: true });
  });
