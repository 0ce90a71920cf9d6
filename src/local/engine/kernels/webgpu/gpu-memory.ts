import type { GpuInfo } from "./gpu-device.js";

/** Memory left for the desktop, and for programs that take more than they say. */
const USED_PART = 0.9;
/** Part of a memory that programs and the GPU share. */
const SHARED_PART = 0.5;
/** Where nothing can be known: pages in a browser. */
const UNKNOWN_BYTES = 2 ** 31;
/** GPUs of other vendors mostly have no memory of their own, and hand out more of the machine's memory than it has. */
const VENDORS_WITH_MEMORY = new Set(["nvidia", "amd"]);

const LARGEST_PIECE_BYTES = 2 ** 32;
const SMALLEST_PIECE_BYTES = 2 ** 26;
const MAX_MEASURED_BYTES = 2 ** 40;
/** Upper bound for activations, keys and values of models up to about a gigabyte. */
const ENOUGH_BYTES = 48 * 2 ** 30;
const STORAGE = 0x80;

/** Facts from which a GPU's memory budget follows. */
export interface BudgetOptions {
  /** The memory of the machine, which GPUs without their own share; unknown in a browser. */
  machineBytes?: number | undefined;
  /** Bytes of the models; memory far beyond their need is not searched for, which would take seconds on a large GPU. */
  modelBytes?: number | undefined;
}

/** Bytes of a GPU that may be used. Objects that must live as long as the GPU's others are added to `keepAlive`. */
export async function budgetOf(
  gpu: GPU,
  { vendor, isSoftware }: Pick<GpuInfo, "vendor" | "isSoftware">,
  { machineBytes, modelBytes }: BudgetOptions,
  keepAlive: unknown[],
): Promise<number> {
  if (machineBytes === undefined) return UNKNOWN_BYTES;
  const isShared = isSoftware || !VENDORS_WITH_MEMORY.has(vendor);
  if (isShared) return Math.floor(SHARED_PART * machineBytes);
  const enough = modelBytes === undefined ? MAX_MEASURED_BYTES : ENOUGH_BYTES + 2 * modelBytes;
  return Math.floor(USED_PART * (await measure(gpu, enough, keepAlive)));
}

/** WebGPU does not tell what is free: it is found by taking all of it for a moment, on a device that is then destroyed. */
async function measure(gpu: GPU, enoughBytes: number, keepAlive: unknown[]): Promise<number> {
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return 0;
  const { maxBufferSize } = adapter.limits;
  const device = await adapter.requestDevice({ requiredLimits: { maxBufferSize } });
  keepAlive.push(adapter, device);
  // Held, so that none is collected and counted twice.
  const pieces: GPUBuffer[] = [];
  let bytes = 0;
  let size = Math.min(LARGEST_PIECE_BYTES, maxBufferSize - (maxBufferSize % 4));
  while (size >= SMALLEST_PIECE_BYTES && bytes < enoughBytes) {
    device.pushErrorScope("out-of-memory");
    // Errors that the scope does not catch, such as an invalid size, must end the search too.
    device.pushErrorScope("validation");
    const piece = device.createBuffer({ size, usage: STORAGE });
    const errors = await Promise.all([device.popErrorScope(), device.popErrorScope()]);
    if (errors.some((error) => error !== null)) {
      size = Math.floor(size / 8) * 4;
    } else {
      pieces.push(piece);
      bytes += size;
    }
  }
  device.destroy();
  await device.lost;
  return bytes;
}
