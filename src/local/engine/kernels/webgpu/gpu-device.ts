/** How exact products are: float32 throughout, or tensor cores, which multiply in float16 and add in float32. */
export type GpuPrecision = "exact" | "fast";

/** An opened graphics card. */
export interface GpuDevice {
  readonly device: GPUDevice;
  /** For people: vendor, architecture, name. */
  readonly description: string;
  /** It computes on the CPU: right, and slow. */
  readonly isSoftware: boolean;
  /** Bytes that may be used. */
  readonly memoryBytes: number;
  readonly precision: GpuPrecision;
  /** Lanes of a subgroup; absent where there are no subgroups, or their size is not fixed. */
  readonly subgroupSize: number | undefined;
  /** Held for as long as the device: where these are collected, Dawn ends the process in the middle of other work. */
  readonly keepAlive: readonly unknown[];
}

/** How a graphics card is opened. */
export interface GpuDeviceOptions {
  precision?: GpuPrecision;
  /** Bytes that may be used. Default: what the device has. */
  memoryBytes?: number;
}

const WANTED_FEATURES = [
  "subgroups",
  "shader-f16",
  "timestamp-query",
  "chromium-experimental-subgroup-matrix",
];
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|software|warp/i;

/** Opens the default card with all that it can do; undefined where there is none. */
export async function openGpuDevice(
  gpu: GPU,
  options: GpuDeviceOptions = {},
): Promise<GpuDevice | undefined> {
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return undefined;
  const { limits, info } = adapter;
  const features = WANTED_FEATURES.filter((name) => adapter.features.has(name)) as GPUFeatureName[];
  const device = await adapter.requestDevice({
    requiredFeatures: features,
    requiredLimits: {
      maxBufferSize: limits.maxBufferSize,
      maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
      maxComputeWorkgroupStorageSize: limits.maxComputeWorkgroupStorageSize,
      maxComputeInvocationsPerWorkgroup: limits.maxComputeInvocationsPerWorkgroup,
      maxComputeWorkgroupSizeX: limits.maxComputeWorkgroupSizeX,
      maxStorageBuffersPerShaderStage: limits.maxStorageBuffersPerShaderStage,
    },
  });
  const { subgroupMinSize, subgroupMaxSize } = info;
  const isFixed = device.features.has("subgroups" as GPUFeatureName) && subgroupMinSize === subgroupMaxSize;
  return {
    device,
    description: [info.vendor, info.architecture, info.description || info.device].filter(Boolean).join(" "),
    isSoftware:
      info.isFallbackAdapter || SOFTWARE.test(`${info.architecture} ${info.device} ${info.description}`),
    memoryBytes: options.memoryBytes ?? 2 ** 31,
    precision: options.precision ?? "exact",
    subgroupSize: isFixed ? subgroupMinSize : undefined,
    keepAlive: [gpu, adapter],
  };
}
