import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { WasmKernels, type WasmThreads } from "./wasm-kernels.js";
import type { WasmExports } from "./wasm-operations.js";

/** How many threads compute, and with which instructions. */
export interface WasmKernelOptions {
  /** Threads that compute, the calling one included. Default: the processor's, at most 8. */
  threads?: number;
  /** Fused multiply-add where the processor has it: faster, but reproducible on one kind of processor only. */
  relaxedSimd?: boolean;
}

/** Kernels in WebAssembly, with worker threads that wait for work until `close`. */
export function createWasmKernels(options: WasmKernelOptions = {}): WasmKernels {
  const threads = threadCount(options.threads);
  const variant = options.relaxedSimd ? "relaxed" : "plain";
  const module = loadModule(variant);
  return new WasmKernels(module, {
    name: `wasm-${variant}`,
    threads,
    startThreads: (memory, exports) => new WorkerThreads(module, memory, exports, threads - 1),
  });
}

function threadCount(asked: number | undefined): number {
  if (asked === undefined) return Math.min(8, availableParallelism());
  if (!Number.isInteger(asked) || asked < 1 || asked > 64) {
    throw new RangeError(`threads must be a whole number from 1 to 64, got ${asked}`);
  }
  return asked;
}

/** Compiled kernels with separate or fused multiply-add. */
type KernelVariant = "plain" | "relaxed";

const COMPILED_MODULES = new Map<KernelVariant, WebAssembly.Module>();

/** Compiles the module once for each variant. */
export function loadModule(variant: KernelVariant): WebAssembly.Module {
  let module = COMPILED_MODULES.get(variant);
  if (!module) {
    const bytes = readFileSync(new URL(`./kernels-${variant}.wasm`, import.meta.url));
    // Node 20 knows relaxed SIMD but hides it behind a flag, which later versions do not know.
    if (!WebAssembly.validate(bytes)) setFlagsFromString("--experimental-wasm-relaxed-simd");
    module = new WebAssembly.Module(bytes);
    COMPILED_MODULES.set(variant, module);
  }
  return module;
}

/** A string rather than a file, so that it starts the same way from sources and from the compiled package. */
const WORKER_SOURCE = `
const { workerData } = require("node:worker_threads");
const { exports } = new WebAssembly.Instance(workerData.module, { env: { memory: workerData.memory } });
try {
  exports.work(workerData.index);
} catch (error) {
  exports.workerFailed();
  throw error;
}
`;

/** Threads that take chunks of jobs; they never keep the process alive. */
class WorkerThreads implements WasmThreads {
  readonly #workers: Worker[] = [];
  readonly #exports: WasmExports;

  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory, exports: WasmExports, count: number) {
    this.#exports = exports;
    for (let index = 1; index <= count; index++) {
      const worker = new Worker(WORKER_SOURCE, {
        eval: true,
        execArgv: [],
        env: {},
        workerData: { module, memory, index },
      });
      // One that cannot start is not missed; one that dies in the middle of a job makes the job throw, which cannot say why.
      worker.on("error", ({ message }) =>
        process.emitWarning(`A thread of the engine has died: ${message}`, "EngineThreadWarning"),
      );
      worker.unref();
      this.#workers.push(worker);
    }
  }

  async close(): Promise<void> {
    this.#exports.stopWorkers();
    await Promise.all(this.#workers.splice(0).map((worker) => worker.terminate()));
  }
}
