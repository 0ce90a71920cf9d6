import { type DeviceSetting, EngineInputError } from "./engine.js";
import type { GpuPrecision } from "./kernels/kernels.js";
import type { GpuDevice } from "./kernels/webgpu/gpu-device.js";

/**
 * Smaller models run faster on the CPU: the GPU would wait for commands most of the time. On an H200 a model of 4 million
 * parameters samples one text at half the speed of 16 CPU threads; from 15 million on nothing is slower (bench/gpu/threshold.mjs).
 */
export const MIN_GPU_PARAMETERS = 15_000_000;

/** Criteria for choosing a device. */
export interface DeviceWish {
  device?: DeviceSetting | undefined;
  precision?: GpuPrecision | undefined;
  /** Parameters of the largest model. */
  parameters: number;
}

/** Chosen device: a GPU, or the CPU if absent; `note` explains the choice to people. */
export type DeviceChoice = { gpu?: GpuDevice; note?: string };

/** Chooses the CPU or a GPU. `openGpu` is called only for a GPU; its error says what is missing. */
export async function chooseDevice(
  { device = "auto", precision = "exact", parameters }: DeviceWish,
  openGpu: () => Promise<GpuDevice>,
): Promise<DeviceChoice> {
  if (device === "cpu") {
    if (precision === "exact") return {};
    throw new EngineInputError("precision fast needs a GPU, but device is cpu");
  }
  const isAskedFor = device === "gpu" || precision === "fast";
  if (!isAskedFor && parameters < MIN_GPU_PARAMETERS) return {};
  let gpu: GpuDevice;
  try {
    gpu = await openGpu();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    if (isAskedFor) throw new EngineInputError(`no GPU can be used: ${why}`);
    return { note: why };
  }
  const { name, isSoftware } = gpu.info;
  if (!isSoftware) return { gpu };
  if (isAskedFor) return { gpu, note: "it is a program that computes on the CPU, slowly" };
  gpu.device.destroy();
  return { note: `there is no GPU, only ${name}, which computes on the CPU and is slow` };
}
