import { createRequire } from "node:module";
import { totalmem } from "node:os";
import type { GpuPrecision } from "../kernels.js";
import {
  describeAdapter,
  findAdapter,
  type GpuDevice,
  type GpuDeviceOptions,
  type GpuInfo,
  openGpuDevice,
} from "./gpu-device.js";
import { budgetOf } from "./gpu-memory.js";

/** Message if the package webgpu is missing. */
export const NOT_INSTALLED = "the package webgpu is not installed: npm install webgpu";

/** For good: where one is collected, even after all that it gave was destroyed, Dawn ends the process. */
const OPENED = new Map<string, GPU>();

/** Dawn's own switches, for those who measure. */
export interface DawnToggles {
  enable?: readonly string[];
  disable?: readonly string[];
}

// Tensor cores need float16, which Dawn hides on NVIDIA. Its bounds checks would cost them more than half of their speed.
const FAST_TOGGLES = ["allow_unsafe_apis", "vulkan_enable_f16_on_nvidia", "disable_robustness"];

const ownGpu = () => (globalThis as { navigator?: { gpu?: GPU } }).navigator?.gpu;

/**
 * WebGPU's entry point: the runtime's own if it has one (Deno), in Node that of the optional package `webgpu`.
 * Undefined where that is not installed.
 */
export async function dawnGpu(
  precision: GpuPrecision,
  { enable = [], disable = [] }: DawnToggles = {},
): Promise<GPU | undefined> {
  const own = ownGpu();
  if (own) return own;
  let dawn: { create(options: string[]): GPU };
  try {
    // Not a name that the compiler or a bundler would look for: it is there or not.
    const name = "webgpu";
    dawn = (await import(name)) as typeof dawn;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ERR_MODULE_NOT_FOUND" && message.includes("'webgpu'")) return undefined;
    throw new Error(`the package webgpu cannot be loaded: ${message}`);
  }
  const enabled = [...(precision === "fast" ? FAST_TOGGLES : []), ...enable];
  const flags = [
    ...(enabled.length > 0 ? [`enable-dawn-features=${enabled}`] : []),
    ...(disable.length > 0 ? [`disable-dawn-features=${disable}`] : []),
  ];
  const key = flags.join(" ");
  const gpu = OPENED.get(key) ?? dawn.create(flags);
  OPENED.set(key, gpu);
  return gpu;
}

/** Whether WebGPU is available; whether it finds a GPU is known once it is opened. */
export function isGpuInstalled(): boolean {
  if (ownGpu()) return true;
  try {
    createRequire(import.meta.url).resolve("webgpu");
    return true;
  } catch {
    return false;
  }
}

/** Opens the machine's GPU with most of its memory; throws an error that says what is missing if there is none. */
export async function openMachineGpu(options: GpuDeviceOptions, toggles?: DawnToggles): Promise<GpuDevice> {
  const gpu = await machineGpu(options.precision ?? "exact", toggles);
  return (await openGpuDevice(gpu, { machineBytes: totalmem(), ...options })) ?? noGpu();
}

/** Description of the machine's GPU with all its features; throws an error that says what is missing if there is none. */
export async function inspectMachineGpu(): Promise<GpuInfo & { memoryBytes: number }> {
  const gpu = await machineGpu("fast");
  const adapter = (await findAdapter(gpu)) ?? noGpu();
  const info = describeAdapter(adapter);
  return { ...info, memoryBytes: await budgetOf(gpu, info, { machineBytes: totalmem() }, []) };
}

async function machineGpu(precision: GpuPrecision, toggles?: DawnToggles): Promise<GPU> {
  const gpu = await dawnGpu(precision, toggles);
  if (!gpu) throw new Error(NOT_INSTALLED);
  return gpu;
}

function noGpu(): never {
  throw new Error("no GPU was found, or its driver (Vulkan, Metal, D3D12) is missing");
}
