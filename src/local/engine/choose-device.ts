import { type DeviceSetting, EngineInputError } from "./engine.js";
import type { GpuPrecision } from "./kernels/kernels.js";
import type { GpuDevice } from "./kernels/webgpu/gpu-device.js";

/**
 * Smaller models run faster on the CPU: the card would wait for commands most of the time. On an H200 a model of 4 million
 * parameters samples one text at half the speed of 16 CPU threads; from 15 million on nothing is slower (bench/gpu/threshold.mjs).
 */
export const MIN_GPU_PARAMETERS = 15_000_000;

/** What a device is chosen by. */
export interface DeviceWish {
  device?: DeviceSetting | undefined;
  precision?: GpuPrecision | undefined;
  /** Of the largest model. */
  parameters: number;
}

/** What the engine computes on; `note` says what people should know about it, and what they could do. */
export type DeviceChoice = { gpu?: GpuDevice; note?: string };

/** The CPU or a card. `openGpu` says what is missing where there is none; it is not called where none is wanted. */
export async function chooseDevice(
  { device = "auto", precision = "exact", parameters }: DeviceWish,
  openGpu: () => Promise<GpuDevice>,
): Promise<DeviceChoice> {
  if (device === "cpu") {
    if (precision === "exact") return {};
    throw new EngineInputError("precision fast is for graphics cards, and device is cpu");
  }
  const isAskedFor = device === "gpu" || precision === "fast";
  if (!isAskedFor && parameters < MIN_GPU_PARAMETERS) return {};
  let gpu: GpuDevice;
  try {
    gpu = await openGpu();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    if (isAskedFor) throw new EngineInputError(`no graphics card can be used: ${why}`);
    return { note: why };
  }
  const { name, isSoftware } = gpu.info;
  if (!isSoftware) return { gpu };
  if (isAskedFor) return { gpu, note: "it is a program that computes on the CPU, slowly" };
  gpu.device.destroy();
  return { note: `there is no graphics card, only ${name}, which computes on the CPU, slowly` };
}
