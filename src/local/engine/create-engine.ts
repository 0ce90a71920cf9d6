import { chooseDevice } from "./choose-device.js";
import type { DeviceSetting, Engine } from "./engine.js";
import { EngineCore, type EngineModel } from "./engine-core.js";
import { fetchKernels } from "./kernels/fetch-kernels.js";
import { WasmKernels } from "./kernels/wasm-kernels.js";
import { type GpuDevice, openGpuDevice } from "./kernels/webgpu/gpu-device.js";
import { createWebGpuKernels } from "./kernels/webgpu/webgpu-kernels.js";

/** Options of `createEngine`: models, device and limits. */
export interface CreateEngineOptions {
  models: EngineModel[];
  /** Device to compute on. Default: `auto`, which takes a GPU if the browser offers one, whatever the size of the models. */
  device?: DeviceSetting;
  /**
   * Where `tinkerts/kernels.wasm` is served. Default: beside this module, where bundlers that know
   * `new URL("...", import.meta.url)` put it.
   */
  kernelsUrl?: string | URL;
  /** Upper bound for the key-value cache of each model's sampler. Default: 512 MiB, on a GPU a part of the free memory. */
  cacheBytes?: number;
}

/**
 * The engine in a page, on WebGPU or WebAssembly. It computes in the thread that calls: in a Web Worker the page stays
 * smooth. In Node, `startLocalBackend` of `tinkerts/local` also has threads and checkpoints.
 */
export async function createEngine(options: CreateEngineOptions): Promise<Engine> {
  const { models, device, cacheBytes } = options;
  // A page has one thread of WebAssembly beside its GPU.
  const parameters = Number.POSITIVE_INFINITY;
  const { gpu, note } = await chooseDevice({ device, parameters }, openPageGpu);
  const kernels = gpu ? createWebGpuKernels(gpu) : new WasmKernels(await fetchKernels(options.kernelsUrl));
  const name = gpu ? `${gpu.info.name} (WebGPU)` : "the CPU (WebAssembly)";
  return EngineCore.create({
    kernels,
    device: { kind: gpu ? "gpu" : "cpu", name, ...(note !== undefined && { note }) },
    models,
    ...(cacheBytes !== undefined && { cacheBytes }),
    freshSeed,
    now: () => performance.now(),
    pause,
  });
}

async function openPageGpu(): Promise<GpuDevice> {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu)
    throw new Error(
      "this browser has no WebGPU, or not on pages like this one (it needs https or localhost)",
    );
  const device = await openGpuDevice(gpu);
  if (!device) throw new Error("the browser shows no GPU");
  return device;
}

function freshSeed(): number {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2)) as unknown as [number, number];
  return (high & 0xffff) * 2 ** 32 + low;
}

/** Timers would wait for milliseconds. */
function pause(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(undefined);
  });
}
