import type { GpuInfo } from "./gpu-device.js";

/** What is left to the desktop, and to those who take a little more than they say. */
const USED_PART = 0.9;
/** Of a memory that programs and the card share. */
const SHARED_PART = 0.5;
/** Where nothing can be known: pages in a browser. */
const UNKNOWN_BYTES = 2 ** 31;
/** Cards of others mostly have no memory of their own, and let more of the machine's be taken than it has. */
const VENDORS_WITH_MEMORY = new Set(["nvidia", "amd"]);

const LARGEST_PIECE_BYTES = 2 ** 32;
const SMALLEST_PIECE_BYTES = 2 ** 26;
const MAX_MEASURED_BYTES = 2 ** 40;
/** What activations, keys and values of models up to a gigabyte or so use at most. */
const ENOUGH_BYTES = 48 * 2 ** 30;
const STORAGE = 0x80;

/** What there is to know for a card's budget. */
export interface BudgetOptions {
  /** The memory of the machine, which cards without their own share; unknown in a browser. */
  machineBytes?: number | undefined;
  /** Of the models to come: memory far beyond their need is not looked for, which on a large card would take seconds. */
  modelBytes?: number | undefined;
}

/** Bytes that may be used of a card. What has to live as long as the card's other objects is added to `keepAlive`. */
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
    // What the error scope does not catch, an invalid size for one, must end the search as well.
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
