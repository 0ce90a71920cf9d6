import { existsSync } from "node:fs";
import { type F32, from, type I32, type Kernels } from "../../src/local/engine/kernels/kernels.js";
import {
  firstBitDifference,
  put,
  randomFloats,
  relativeError,
} from "../../src/local/engine/kernels/test-support.js";
import { dawnGpu } from "../../src/local/engine/kernels/webgpu/dawn.node.js";
import { type GpuDeviceOptions, openGpuDevice } from "../../src/local/engine/kernels/webgpu/gpu-device.js";
import {
  createWebGpuKernels,
  type GpuContext,
} from "../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { createReferenceKernels } from "../engine/reference-kernels.js";

const SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json";

/** For programs that use the machine's card, which `npm run test:gpu` looks for, or else SwiftShader. */
export function gpuEnvironment(): NodeJS.ProcessEnv {
  const isChosen = process.env["VK_DRIVER_FILES"] || process.env["TINKERTS_TEST_GPU"] === "card";
  if (isChosen || !existsSync(SWIFTSHADER)) return process.env;
  return { ...process.env, VK_DRIVER_FILES: SWIFTSHADER };
}

/** Kernels on the machine's card, or on SwiftShader where there is none. */
export async function openKernels(options: GpuDeviceOptions = {}): Promise<Kernels> {
  Object.assign(process.env, gpuEnvironment());
  const gpu = await dawnGpu(options.precision ?? "exact");
  const device = gpu && (await openGpuDevice(gpu, options));
  if (!device)
    throw new Error("there is no GPU, not even SwiftShader: run `npm run test:gpu`, which installs it");
  return createWebGpuKernels(device);
}

/** The same operation on the GPU and on the reference kernels: each buffer that it returns must agree. */
export async function compare(
  kernels: Kernels,
  tolerance: number,
  operation: (kernels: Kernels) => F32[],
): Promise<void> {
  const reference = createReferenceKernels();
  const expected = await Promise.all(operation(reference).map((buffer) => reference.download(buffer)));
  const mark = kernels.mark();
  const actual = await Promise.all(operation(kernels).map((buffer) => kernels.download(buffer)));
  kernels.release(mark);
  expected.forEach((values, index) => {
    const error = relativeError(actual[index]!, values);
    if (!(error < tolerance)) throw new Error(`result ${index} is off by ${error}, allowed ${tolerance}`);
  });
}

/** The same operation twice: each buffer that it returns must have the same bits again. */
export async function compareTwice(kernels: Kernels, operation: (kernels: Kernels) => F32[]): Promise<void> {
  const run = () => Promise.all(operation(kernels).map((buffer) => kernels.download(buffer)));
  const first = await run();
  const second = await run();
  first.forEach((values, index) => {
    const difference = firstBitDifference(second[index]!, values);
    if (difference) throw new Error(`result ${index} differs the second time at ${difference}`);
  });
}

/** Random values in a buffer of these kernels; \`skip\` of them are left out at its beginning, so that it is not aligned. */
export const random = (kernels: Kernels, length: number, seed: number, skip = 0): F32 =>
  from(put(kernels, randomFloats(skip + length, seed)), skip);

/** The same kernels for an operation of theirs, as on a device that binds no more than so many bytes at once. */
export function withSmallBindings(kernels: Kernels, maxStorageBufferBindingSize: number): GpuContext {
  const context = kernels as Kernels & GpuContext;
  const gpu = { device: { limits: { maxStorageBufferBindingSize } } } as unknown as GpuContext["gpu"];
  return {
    queue: context.queue,
    gpu,
    mark: () => context.mark(),
    scratch: (length) => context.scratch(length),
    scratchInts: (length) => context.scratchInts(length),
    release: (mark) => context.release(mark),
    upload: (buffer, data) => context.upload(buffer, data),
    uploadInts: (buffer, data) => context.uploadInts(buffer, data),
    download: (buffer) => context.download(buffer),
  };
}

/** Whole numbers in a buffer of these kernels. */
export function ints(kernels: Kernels, values: readonly number[]): I32 {
  const buffer = kernels.allocInts(values.length);
  kernels.uploadInts(buffer, Int32Array.from(values));
  return buffer;
}
