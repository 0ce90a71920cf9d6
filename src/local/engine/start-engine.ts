import { randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { type Clock, systemClock } from "../../transport/clock.js";
import type { AdapterCopy, Engine, EngineOptions, OnToken, ReplaceableEngine } from "./engine.js";
import { EngineCore } from "./engine-core.js";
import { folderModel } from "./folder-model.node.js";
import { createWasmKernels } from "./kernels/index.js";
import { RestingEngine } from "./resting-engine.js";
import {
  type EngineAnswer,
  type EngineMethod,
  type EngineRequest,
  transferables,
  unpackError,
} from "./worker-messages.js";

const DEFAULT_CACHE_BYTES = 512 << 20;

/**
 * Loads the models and starts the engine: in this thread with `inThread`, or in a worker thread, which gives memory back
 * when by this clock it has rested for long enough.
 */
export async function startEngine(options: EngineOptions, clock: Clock = systemClock): Promise<Engine> {
  if (options.inThread) return createEngineCore(options);
  return RestingEngine.start(() => startWorker(options), clock);
}

/** The engine in this thread. */
export async function createEngineCore(options: EngineOptions): Promise<ReplaceableEngine> {
  const { threads, relaxedSimd } = options;
  return EngineCore.create({
    kernels: createWasmKernels({
      ...(threads === undefined ? {} : { threads }),
      ...(relaxedSimd === undefined ? {} : { relaxedSimd }),
    }),
    models: options.models.map(folderModel),
    cacheBytes: options.cacheBytes ?? DEFAULT_CACHE_BYTES,
    freshSeed: () => randomInt(2 ** 48 - 1),
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
}

/** Run from sources (in tests), the worker is the compiled one; it has to be built first. */
function workerFile(): string {
  const here = new URL("./engine-worker.js", import.meta.url);
  if (existsSync(here)) return fileURLToPath(here);
  const compiled = new URL("../../../dist/local/engine/engine-worker.js", import.meta.url);
  if (existsSync(compiled)) return fileURLToPath(compiled);
  throw new Error(
    "the engine's worker is not compiled: run `npm run build`, or start the engine with inThread",
  );
}

/** The engine in a worker thread of its own. */
export function startWorker(options: EngineOptions): Promise<ReplaceableEngine> {
  // Without the program's own flags: `--input-type`, for one, is an error for a worker made from a file.
  const worker = new Worker(workerFile(), { workerData: options, execArgv: [] });
  const pending = new Map<
    number,
    { resolve(value: unknown): void; reject(error: unknown): void; onToken?: OnToken | undefined }
  >();
  let nextId = 1;
  let ended: Error | undefined;
  const end = (error: Error) => {
    ended ??= error;
    for (const { reject } of pending.values()) reject(ended);
    pending.clear();
    worker.unref();
  };
  const call = <T>(method: EngineMethod, ...args: unknown[]): Promise<T> => callWith([], method, args);
  const callWith = <T>(
    transferred: ArrayBuffer[],
    method: EngineMethod,
    args: unknown[],
    onToken?: OnToken,
  ): Promise<T> =>
    new Promise((resolve, reject) => {
      if (ended) {
        reject(ended);
        return;
      }
      const id = nextId++;
      pending.set(id, { resolve: resolve as (value: unknown) => void, reject, onToken });
      const wantsTokens = onToken !== undefined;
      const request: EngineRequest = { kind: "call", id, method, args, wantsTokens };
      worker.postMessage(request, transferred);
    });
  const engine: ReplaceableEngine = {
    models: () => call("models"),
    createAdapter: (...args) => call("createAdapter", ...args),
    forwardBackward: (...args) => call("forwardBackward", ...args),
    optimStep: (...args) => call("optimStep", ...args),
    exportAdapter: (...args) => call("exportAdapter", ...args),
    importAdapter: (...args) => call("importAdapter", ...args),
    cloneAdapter: (...args) => call("cloneAdapter", ...args),
    removeAdapter: (...args) => call("removeAdapter", ...args),
    sample: (sampleCall, onToken) => callWith([], "sample", [sampleCall], onToken),
    memory: () => call("memory"),
    copyAdapters: () => call("copyAdapters"),
    placeAdapters: (copies: AdapterCopy[]) => callWith(transferables(copies), "placeAdapters", [copies]),
    cancelSample: (requestId) => {
      if (!ended) worker.postMessage({ kind: "cancel", requestId } satisfies EngineRequest);
    },
    close: async () => {
      if (ended) return;
      await call("close");
      end(new Error("the engine was closed"));
      await worker.terminate();
    },
  };
  return new Promise((resolve, reject) => {
    worker.on("message", (answer: EngineAnswer) => {
      switch (answer.kind) {
        case "ready":
          resolve(engine);
          return;
        case "failed":
          reject(unpackError(answer.error));
          return;
        case "token":
          pending.get(answer.id)?.onToken?.(answer.token);
          return;
        case "value":
          pending.get(answer.id)?.resolve(answer.value);
          pending.delete(answer.id);
          return;
        case "error":
          pending.get(answer.id)?.reject(unpackError(answer.error));
          pending.delete(answer.id);
          return;
        default:
          answer satisfies never;
      }
    });
    worker.on("error", (error) => {
      reject(error);
      end(error instanceof Error ? error : new Error(String(error)));
    });
    worker.on("exit", (code) => end(new Error(`the engine's worker ended with code ${code}`)));
  });
}
