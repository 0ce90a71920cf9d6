import { randomInt } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { type Clock, systemClock } from "../../transport/clock.js";
import { chooseDevice } from "./choose-device.js";
import {
  type AdapterCopy,
  type DeviceSetting,
  type Engine,
  type EngineDevice,
  EngineInputError,
  EngineLostError,
  type EngineOptions,
  type OnLost,
  type OnToken,
  type ReplaceableEngine,
} from "./engine.js";
import { EngineCore, type EngineModel } from "./engine-core.js";
import { askingMethods } from "./engine-methods.js";
import { folderModel } from "./folder-model.node.js";
import { createWasmKernels } from "./kernels/wasm-kernels.node.js";
import { isGpuInstalled, NOT_INSTALLED, openMachineGpu } from "./kernels/webgpu/dawn.node.js";
import { LastingEngine } from "./lasting-engine.js";
import { checkModel, countParameters } from "./model/base-model.js";
import type { ModelFiles } from "./model/model-files.js";
import { openModelFolder } from "./model/model-folder.node.js";
import { awaitStandstill, newStandstill } from "./standstill.js";
import {
  type EngineAnswer,
  type EngineMethod,
  type EngineRequest,
  transferables,
  unpackError,
} from "./worker-messages.js";

/**
 * Loads the models and starts the engine: in this thread with `inThread`, or in a worker thread, which gives memory back
 * when by this clock it has rested for long enough, and is started again when it is lost.
 */
export async function startEngine(options: EngineOptions, clock: Clock = systemClock): Promise<Engine> {
  if (options.inThread) return createEngineCore(options);
  let { device } = options;
  return LastingEngine.start(async () => {
    const engine = await startWorker({ ...options, ...(device && { device }) });
    // An engine that takes another's place computes where that one did: elsewhere its results would be others.
    device = (await engine.device()).kind;
    return engine;
  }, clock);
}

/** The engine in this thread; `onPause` is called between its steps. */
export async function createEngineCore(
  options: EngineOptions,
  onPause: () => void = () => {},
): Promise<ReplaceableEngine> {
  const { device, precision, gpuMemoryBytes: memoryBytes, threads, relaxedSimd } = options;
  const configs = options.models.map(({ name, path }) => ({ name, config: readConfig(path) }));
  const counts = configs.map(({ name, config }) => countParameters(config, name));
  const parameters = Math.max(...counts);
  const modelBytes = 4 * counts.reduce((sum, count) => sum + count, 0);
  const { gpu, note } = await chooseDevice({ device, precision, parameters }, () =>
    openMachineGpu({ modelBytes, ...(precision && { precision }), ...(memoryBytes && { memoryBytes }) }),
  );
  if (!gpu) for (const { name, config } of configs) checkForCpu(config, name, note);
  const kernels = gpu
    ? (await import("./kernels/webgpu/webgpu-kernels.js")).createWebGpuKernels(gpu)
    : createWasmKernels({
        ...(threads === undefined ? {} : { threads }),
        ...(relaxedSimd === undefined ? {} : { relaxedSimd }),
      });
  const name = gpu
    ? `${gpu.info.name} (WebGPU)`
    : `the CPU, ${kernels.threads} ${kernels.threads === 1 ? "thread" : "threads"}`;
  return EngineCore.create({
    kernels,
    device: { kind: gpu ? "gpu" : "cpu", name, ...(note !== undefined && { note }) },
    models: options.models.map((model) => pausing(folderModel(model), onPause)),
    ...(options.cacheBytes !== undefined && { cacheBytes: options.cacheBytes }),
    freshSeed: () => randomInt(2 ** 48 - 1),
    now: () => performance.now(),
    pause: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      onPause();
    },
  });
}

/** A model that calls before each of its tensors is read. */
function pausing(model: EngineModel, onPause: () => void): EngineModel {
  return {
    ...model,
    open: () => {
      const files = model.open();
      const read: ModelFiles["read"] = (name) => {
        onPause();
        return files.read(name);
      };
      return { ...files, read };
    },
  };
}

function readConfig(folder: string): unknown {
  const files = openModelFolder(folder);
  files.close();
  return files.config;
}

/** Refuses a model that the CPU cannot hold, and says why no GPU is used. */
function checkForCpu(config: unknown, name: string, whyNoGpu: string | undefined): void {
  try {
    checkModel(config, name);
  } catch (error) {
    if (!(error instanceof EngineInputError) || whyNoGpu === undefined) throw error;
    throw new EngineInputError(`${error.message}, and ${whyNoGpu}`);
  }
}

/** Refuses a model by its `config.json` where this machine could not hold it on such a device, before it is downloaded. */
export function modelCheck(device: DeviceSetting = "auto"): (config: unknown, name: string) => void {
  if (device === "cpu") return checkModel;
  if (!isGpuInstalled()) return (config, name) => checkForCpu(config, name, NOT_INSTALLED);
  // A GPU's memory is known once it is opened.
  return (config, name) => checkModel(config, name, { device: "gpu", memoryBytes: Number.POSITIVE_INFINITY });
}

/** Run from sources (in tests), the worker is the compiled one; it has to be built first. */
function workerFile(): string {
  const here = new URL("./engine-worker.node.js", import.meta.url);
  if (existsSync(here)) return fileURLToPath(here);
  const compiled = new URL("../../../dist/local/engine/engine-worker.node.js", import.meta.url);
  if (existsSync(compiled)) return fileURLToPath(compiled);
  throw new Error(
    "the engine's worker is not compiled: run `npm run build`, or start the engine with inThread",
  );
}

/** Heap for objects, without weights and caches. Below 2 GiB, V8 lets garbage double the heap, not quadruple it, before it collects. */
const MAX_HEAP_MB = 2047;

const CLOSED = "the engine was closed";

/** The engine in a worker thread of its own. */
export function startWorker(options: EngineOptions): Promise<ReplaceableEngine> {
  const standstill = newStandstill();
  // Without the program's own flags: `--input-type`, for one, is an error for a worker made from a file.
  const worker = new Worker(workerFile(), {
    workerData: { options, standstill },
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  });
  const pending = new Map<
    number,
    { resolve(value: unknown): void; reject(error: unknown): void; onToken?: OnToken | undefined }
  >();
  let nextId = 1;
  let ended: Error | undefined;
  let isClosing = false;
  let device: EngineDevice | undefined;
  const onLost: OnLost[] = [];
  const lose = (error: EngineLostError) => {
    for (const listener of onLost.splice(0)) listener(error);
  };
  const end = (error: Error) => {
    if (!ended && error instanceof EngineLostError) lose(error);
    ended ??= error;
    for (const { reject } of pending.values()) reject(ended);
    pending.clear();
    worker.unref();
    process.off("exit", atExit);
  };
  // A thread that the end of the process meets in a call into Dawn makes a crash of it.
  const atExit = () => {
    const mayLoad = device === undefined && options.device !== "cpu" && isGpuInstalled();
    if (mayLoad || (device?.kind === "gpu" && pending.size > 0)) awaitStandstill(standstill);
  };
  process.once("exit", atExit);
  // A thread with nothing to do keeps no process alive.
  const rest = () => {
    if (pending.size === 0) worker.unref();
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
      if (pending.size === 0) worker.ref();
      pending.set(id, { resolve: resolve as (value: unknown) => void, reject, onToken });
      const wantsTokens = onToken !== undefined;
      const request: EngineRequest = { kind: "call", id, method, args, wantsTokens };
      worker.postMessage(request, transferred);
    });
  const engine: ReplaceableEngine = {
    ...askingMethods((method, args) => callWith([], method, args)),
    device: async () => device!,
    sample: (sampleCall, onToken) => callWith([], "sample", [sampleCall], onToken),
    memory: () => call("memory"),
    copyAdapters: () => call("copyAdapters"),
    placeAdapters: (copies: AdapterCopy[]) => callWith(transferables(copies), "placeAdapters", [copies]),
    cancelSample: (requestId) => {
      if (!ended) worker.postMessage({ kind: "cancel", requestId } satisfies EngineRequest);
    },
    onLost: (listener) => {
      onLost.push(listener);
    },
    close: async () => {
      if (ended) return;
      const exited = once(worker, "exit");
      isClosing = true;
      await call("close");
      end(new Error(CLOSED));
      worker.ref();
      await exited;
    },
  };
  return new Promise((resolve, reject) => {
    worker.on("message", (answer: EngineAnswer) => {
      switch (answer.kind) {
        case "ready":
          device = answer.device;
          rest();
          resolve(engine);
          return;
        case "lost":
          lose(new EngineLostError(answer.error.message));
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
          rest();
          return;
        case "error":
          pending.get(answer.id)?.reject(unpackError(answer.error));
          pending.delete(answer.id);
          rest();
          return;
        default:
          answer satisfies never;
      }
    });
    worker.on("error", (error) => {
      reject(error);
      const why = error instanceof Error ? error.message : String(error);
      end(new EngineLostError(`The engine's thread failed: ${why}`));
    });
    worker.on("exit", (code) => {
      // Its last answer may come together with its end.
      const error = isClosing
        ? new Error(CLOSED)
        : new EngineLostError(`The engine's thread ended with code ${code}`);
      reject(error);
      end(error);
    });
  });
}
