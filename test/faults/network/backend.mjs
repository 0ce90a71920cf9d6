// The built-in backend in a process of its own, whose engine keeps a history of what it really executed.
// Started with fork(): tells its address, then answers "history" with everything since the last time it was asked.
import { createHash } from "node:crypto";
import { CancelledError } from "../../../dist/local/engine/engine.js";
import { startEngine } from "../../../dist/local/engine/start-engine.node.js";
import { startLocalBackend } from "../../../dist/local/index.js";
import { scaledClock } from "../shared/scaled-clock.mjs";
import { TINY_MODEL } from "../shared/tiny-model.mjs";

const { modelFolder, dataDir, clientConfig } = JSON.parse(process.argv[2]);

/** What changes weights, reads them or samples from them, with what identifies each call. */
const RECORDED = {
  createAdapter: (adapterId, _baseModel, lora) => ({ adapterId, what: lora }),
  forwardBackward: ({ adapterId, ...call }) => ({ adapterId, what: call }),
  optimStep: (adapterId, adam) => ({ adapterId, what: adam }),
  importAdapter: (adapterId, _baseModel, state, options) => ({ adapterId, what: [state, options] }),
  exportAdapter: (adapterId, options) => ({ adapterId, what: options }),
  cloneAdapter: (adapterId) => ({ adapterId, what: null }),
  sample: ({ requestId, adapterId: _, ...call }) => ({ adapterId: requestId, what: call }),
};

const fingerprint = (value) =>
  createHash("sha256")
    .update(JSON.stringify(value, (_, item) => (ArrayBuffer.isView(item) ? Array.from(item) : item)))
    .digest("hex")
    .slice(0, 16);

/** Monotonic nanoseconds of the machine, which the client's process reads too. */
const now = () => Number(process.hrtime.bigint());

let history = [];
const engine = await startEngine({ models: [{ name: TINY_MODEL, path: modelFolder }], threads: 1 });
const recording = new Proxy(engine, {
  get(target, name) {
    const method = target[name];
    if (typeof method !== "function") return method;
    const describe = RECORDED[name];
    if (describe === undefined) return method.bind(target);
    return async (...parameters) => {
      const { adapterId, what } = describe(...parameters);
      const event = { f: name, adapterId, fingerprint: fingerprint(what), begin: now(), end: null };
      history.push(event);
      try {
        const result = await method.apply(target, parameters);
        event.end = now();
        return result;
      } catch (error) {
        event.isCancelled = error instanceof CancelledError;
        throw error;
      }
    };
  },
});

const backend = await startLocalBackend({
  engine: recording,
  dataDir,
  clock: scaledClock(),
  clientConfig,
});
process.on("message", (message) => {
  if (message === "history") {
    process.send({ history });
    history = [];
  }
  if (message === "close") void backend.close().then(() => process.disconnect());
});
// No client is left: the runs are over, or were interrupted.
process.on("disconnect", () => process.exit());
process.send({ baseURL: backend.baseURL });
