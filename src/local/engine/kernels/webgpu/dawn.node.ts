import type { GpuPrecision } from "./gpu-device.js";

/** The way to a graphics card in Node, through the optional package `webgpu`; undefined where it is not installed. */
export async function dawnGpu(precision: GpuPrecision): Promise<GPU | undefined> {
  let dawn: { create(options: string[]): GPU };
  try {
    // Not a name that the compiler or a bundler would look for: it is there or not.
    const name = "webgpu";
    dawn = (await import(name)) as typeof dawn;
  } catch {
    return undefined;
  }
  // Tensor cores need float16, which Dawn hides on NVIDIA. Its bounds checks would cost them more than half of their speed.
  const toggles = "allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_robustness";
  return dawn.create(precision === "fast" ? [`enable-dawn-features=${toggles}`] : []);
}
