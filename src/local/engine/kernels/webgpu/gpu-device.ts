import type { GpuPrecision } from "../kernels.js";
import { type BudgetOptions, budgetOf } from "./gpu-memory.js";

/** A GPU's description of itself. */
export interface GpuInfo {
  readonly name: string;
  readonly vendor: string;
  readonly architecture: string;
  /** Mostly the driver and its version. */
  readonly description: string;
  /** The GPU is a program that computes on the CPU, slowly. */
  readonly isSoftware: boolean;
  /** Lanes of a subgroup; absent where there are no subgroups, or their size is not fixed. */
  readonly subgroupSize: number | undefined;
  readonly hasFloat16: boolean;
  /** Products of small matrices that a whole subgroup computes, as the driver lists them: "f16 to f32 16x16x16". */
  readonly matrixProducts: readonly string[];
  /** The GPU has the matrix products that precision `fast` uses. */
  readonly hasTensorCores: boolean;
  readonly maxBufferBytes: number;
  readonly maxBindingBytes: number;
}

/** An opened GPU, with the facts by which kernels are chosen. */
export interface GpuDevice {
  readonly device: GPUDevice;
  readonly info: GpuInfo;
  /** Bytes that may be used. */
  readonly memoryBytes: number;
  readonly precision: GpuPrecision;
  /** Held for as long as the device: where these are collected, Dawn ends the process in the middle of other work. */
  readonly keepAlive: readonly unknown[];
}

/** Options for opening a GPU. */
export interface GpuDeviceOptions extends BudgetOptions {
  precision?: GpuPrecision;
  /** Bytes that may be used. Default: most of the GPU's memory, if that is known. */
  memoryBytes?: number;
}

const TENSOR_CORES = "chromium-experimental-subgroup-matrix";
/** The matrix products that precision `fast` uses, and the lanes that hold a matrix. */
const [FAST_MATRICES, FAST_LANES] = ["f16 to f32 16x16x16", 32];
const WANTED_FEATURES = ["subgroups", "shader-f16", "timestamp-query", TENSOR_CORES];
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|software|warp|basic render/i;
/** A driver that has not answered by then never will. */
const PATIENCE_MS = 20_000;

/** The fastest GPU, or a software GPU if there is nothing else; undefined if there is none. */
export async function findAdapter(gpu: GPU): Promise<GPUAdapter | undefined> {
  const found = gpu.requestAdapter({ powerPreference: "high-performance" });
  return (await answered(found)) ?? undefined;
}

/** Description of a GPU before it is opened. */
export function describeAdapter({ info, features, limits }: GPUAdapter): GpuInfo {
  const { vendor, architecture, device, description, subgroupMinSize, subgroupMaxSize } = info;
  const has = (name: string) => features.has(name as GPUFeatureName);
  const subgroupSize = has("subgroups") && subgroupMinSize === subgroupMaxSize ? subgroupMinSize : undefined;
  const matrixProducts = has(TENSOR_CORES) ? matrixProductsOf(info) : [];
  return {
    // Deno has numbers where others have names.
    name:
      [nameOf(device), description, nameOf(`${vendor} ${architecture}`)].find(isName) ??
      "a GPU without a name",
    vendor,
    architecture,
    description,
    isSoftware: info.isFallbackAdapter || SOFTWARE.test(`${architecture} ${device} ${description}`),
    subgroupSize,
    hasFloat16: has("shader-f16"),
    matrixProducts,
    hasTensorCores:
      matrixProducts.includes(FAST_MATRICES) && subgroupSize === FAST_LANES && has("shader-f16"),
    maxBufferBytes: limits.maxBufferSize,
    maxBindingBytes: limits.maxStorageBufferBindingSize,
  };
}

const isName = (text: string) => /[a-z]/i.test(text);

/** Not in the standard yet, and seen on the adapter alone, where unsafe features are allowed. */
function matrixProductsOf(info: GPUAdapterInfo): string[] {
  type Config = { componentType: string; resultComponentType: string; M: number; N: number; K: number };
  const { subgroupMatrixConfigs = [] } = info as { subgroupMatrixConfigs?: ArrayLike<Config> };
  return Array.from(
    subgroupMatrixConfigs,
    ({ componentType, resultComponentType, M, N, K }) =>
      `${componentType} to ${resultComponentType} ${M}x${N}x${K}`,
  );
}

/** GPUs come as `nvidia-h200`, normalized for programs. */
function nameOf(normalized: string): string {
  const words = normalized.split(/[-\s]+/).filter(Boolean);
  const capitalized = (word: string) =>
    word.length <= 3 || /\d|^nvidia$/.test(word)
      ? word.toUpperCase()
      : `${word[0]!.toUpperCase()}${word.slice(1)}`;
  return words.map(capitalized).join(" ");
}

/** Opens a GPU with all its features; undefined if there is none. */
export async function openGpuDevice(
  gpu: GPU,
  options: GpuDeviceOptions = {},
): Promise<GpuDevice | undefined> {
  const adapter = await findAdapter(gpu);
  if (!adapter) return undefined;
  const info = describeAdapter(adapter);
  const precision = options.precision ?? "exact";
  if (precision === "fast" && !info.hasTensorCores) {
    throw new Error(`${info.name} cannot compute with precision fast: ${lacking(info)}`);
  }
  const { limits } = adapter;
  const wanted = adapter.requestDevice({
    requiredFeatures: WANTED_FEATURES.filter((name) => adapter.features.has(name)) as GPUFeatureName[],
    requiredLimits: {
      maxBufferSize: limits.maxBufferSize,
      maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
      maxComputeWorkgroupStorageSize: limits.maxComputeWorkgroupStorageSize,
      maxComputeInvocationsPerWorkgroup: limits.maxComputeInvocationsPerWorkgroup,
      maxComputeWorkgroupSizeX: limits.maxComputeWorkgroupSizeX,
      maxStorageBuffersPerShaderStage: limits.maxStorageBuffersPerShaderStage,
    },
  });
  // Awaited first, so that a rejection is not left unhandled.
  const device = await answered(wanted);
  const keepAlive: unknown[] = [gpu, adapter];
  const memoryBytes = options.memoryBytes ?? (await budgetOf(gpu, info, options, keepAlive));
  return { device, info, memoryBytes, precision, keepAlive };
}

function lacking({ hasFloat16, matrixProducts, subgroupSize }: GpuInfo): string {
  if (matrixProducts.length === 0) return `it lacks ${TENSOR_CORES}`;
  if (!hasFloat16) return "it lacks shader-f16";
  if (subgroupSize !== FAST_LANES)
    return `it needs subgroups of ${FAST_LANES}, not of ${subgroupSize ?? "several sizes"}`;
  return `it needs products of matrices from ${FAST_MATRICES}, and has ${matrixProducts.join(", ")}`;
}

/** Waits for a driver, but not for ever. */
async function answered<T>(promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const seconds = PATIENCE_MS / 1000;
    timer = setTimeout(() => reject(new Error(`the driver has not answered for ${seconds} s`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
