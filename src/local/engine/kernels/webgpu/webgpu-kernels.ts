import type { SafetensorsDtype } from "../../../../checkpoints/safetensors.js";
import type {
  EngineLostError,
  F32,
  Frozen,
  I32,
  Kernels,
  RotateIntoPages,
  StepSizes,
  StoredTensor,
} from "../kernels.js";
import { rotateOneByOne } from "../rotate-into-pages.js";
import { addLowRank } from "./add-low-rank.js";
import { attention } from "./attention.js";
import { attentionBackward } from "./attention-backward.js";
import { chooseTokens, topTokens } from "./choose-tokens.js";
import { CommandQueue } from "./command-queue.js";
import { copyPages } from "./copy-pages.js";
import { DeviceMemory, onDevice } from "./device-memory.js";
import { adamw, addBuffers, addScaled, copy, scale, sumSquares, zero } from "./elementwise.js";
import { fewRowKernels } from "./few-rows.js";
import { fillFrozen, frozenLayout, type GpuFrozen } from "./frozen.js";
import { gatherRows, scatterAddRows, scatterRows } from "./gather-rows.js";
import type { GpuDevice } from "./gpu-device.js";
import { attentionPaged } from "./paged-attention.js";
import { multiplyMatrices } from "./products.js";
import { normRope, normRopeBackward } from "./rotary.js";
import { ROTATED_BUFFERS, rotateIntoPages } from "./rotate-into-pages.js";
import { rmsNorm, rmsNormBackward, swiglu, swigluBackward } from "./rows.js";
import { tokenGradients } from "./token-gradients.js";
import { logitsGradient, logSoftmaxGather } from "./vocabulary.js";

/** Context of each operation: the queue that records it, scratch memory, and the device. */
export interface GpuContext {
  readonly queue: CommandQueue;
  readonly gpu: GpuDevice;
  mark(): number;
  scratch(length: number): F32;
  scratchInts(length: number): I32;
  release(mark: number): void;
  uploadInts(buffer: I32, data: Int32Array): void;
  upload(buffer: F32, data: Float32Array): void;
  download(buffer: F32): Promise<Float32Array>;
}

/** Memory of one operation: parts of sums, or a side of a product in float16; the head's gradient is the largest. */
const WORKSPACE_BYTES = 384 << 20;
/** Bytes for each value of a side in float16, which long sequences make larger than that; rows are rounded up. */
const FLOAT16_BYTES = 2.25;

const OPERATIONS = {
  ...{ rmsNorm, rmsNormBackward, normRope, normRopeBackward, swiglu, swigluBackward },
  ...{ gatherRows, scatterRows, scatterAddRows, attention, attentionBackward, attentionPaged },
  ...{ logSoftmaxGather, logitsGradient, tokenGradients, chooseTokens, topTokens },
  ...{ addLowRank, copyPages, zero, copy, add: addBuffers, addScaled, scale, sumSquares, adamw },
  matmul: (context: GpuContext, ...[c, a, b, m, n, k, options]: Parameters<Kernels["matmul"]>) =>
    multiplyMatrices(context, { c, a, b, m, n, k, ...options }),
};

type Bound<Operations> = {
  [Name in keyof Operations]: Operations[Name] extends (
    context: GpuContext,
    ...rest: infer Rest
  ) => infer Result
    ? (...rest: Rest) => Result
    : never;
};

/** Kernels in WGSL on a GPU: its memory, and the operations on it. */
export function createWebGpuKernels(gpu: GpuDevice): Kernels {
  const memory = new WebGpuMemory(gpu);
  const bound = Object.entries(OPERATIONS).map(([name, operation]) => [
    name,
    (operation as (...all: unknown[]) => unknown).bind(undefined, memory),
  ]);
  const kernels = Object.assign(memory, Object.fromEntries(bound) as Bound<typeof OPERATIONS>);
  const isOneRun = gpu.device.limits.maxStorageBuffersPerShaderStage >= ROTATED_BUFFERS;
  return Object.assign(kernels, {
    fewRows: fewRowKernels(memory),
    rotateIntoPages: (operation: RotateIntoPages) =>
      isOneRun ? rotateIntoPages(memory, operation) : rotateOneByOne(kernels, operation),
  });
}

class WebGpuMemory implements GpuContext {
  readonly name = "webgpu";
  readonly threads = 1;
  readonly gpu: GpuDevice;
  readonly queue: CommandQueue;
  readonly #memory: DeviceMemory;
  readonly lost: Promise<EngineLostError>;
  #closed = false;

  constructor(gpu: GpuDevice) {
    this.gpu = gpu;
    const { device } = gpu;
    this.queue = new CommandQueue(device);
    this.lost = this.queue.failed;
    this.#memory = new DeviceMemory(device, gpu.memoryBytes, (blocks) => {
      this.queue.flush();
      this.queue.forgetBindGroups(blocks);
    });
    void device.lost.then(({ message }) => {
      if (!this.#closed) this.queue.fail(`The GPU was lost: ${message || "its driver gave no reason"}`);
    });
    device.onuncapturederror = ({ error }) => {
      const isOutOfMemory = error.constructor.name === "GPUOutOfMemoryError";
      this.queue.fail(
        isOutOfMemory ? `The GPU ran out of memory: ${error.message}` : `The GPU failed: ${error.message}`,
      );
    };
  }

  get sizes(): StepSizes {
    return {
      trainingTokens: 8192,
      sharedTrainingTokens: 2048,
      // A part of what models and adapters leave; the rest is for keys and values.
      trainingBytes: Math.floor((5 / 8) * (this.gpu.memoryBytes - this.#memory.allocatedBytes)),
      headLogits: Math.floor(Math.min(1 << 27, this.gpu.device.limits.maxStorageBufferBindingSize / 8)),
      samples: 256,
      promptRows: 2048,
      promptLogits: 1 << 25,
    };
  }

  // --- memory ---------------------------------------------------------------------------------------------------
  get allocatedBytes(): number {
    return this.#memory.allocatedBytes;
  }

  get reservedBytes(): number {
    return this.#memory.reservedBytes;
  }

  alloc(length: number): F32 {
    return this.#handle("f32", this.#memory.alloc(4 * length), 0, length) as F32;
  }

  allocInts(length: number): I32 {
    return this.#handle("i32", this.#memory.alloc(4 * length), 0, length) as I32;
  }

  free(buffer: F32 | I32): void {
    this.#memory.free(onDevice(buffer).block);
  }

  mark(): number {
    return this.#memory.mark();
  }

  scratch(length: number): F32 {
    const { block, offset } = this.#memory.take(4 * length);
    return this.#handle("f32", block, offset, length) as F32;
  }

  scratchInts(length: number): I32 {
    const { block, offset } = this.#memory.take(4 * length);
    return this.#handle("i32", block, offset, length) as I32;
  }

  release(mark: number): void {
    this.#memory.release(mark);
  }

  async reserveScratch(length: number, largest = length): Promise<void> {
    // The operations' own memory was not counted.
    const workspaceBytes = Math.max(
      Math.min(WORKSPACE_BYTES, this.gpu.memoryBytes / 16),
      this.gpu.precision === "fast" ? FLOAT16_BYTES * largest : 0,
    );
    const bytes = 4 * length + workspaceBytes;
    if (this.#memory.has(bytes)) return;
    this.#memory.dropScratch();
    // Memory comes back when the device is done with it.
    await this.queue.done();
    const { device } = this.gpu;
    device.pushErrorScope("out-of-memory");
    let refused: unknown;
    try {
      this.#memory.reserve(bytes, Math.max(4 * largest, workspaceBytes));
    } catch (error) {
      refused = error;
    }
    const failure = await device.popErrorScope();
    if (!refused && !failure) return;
    this.#memory.dropScratch();
    throw refused ?? new RangeError(`the GPU is out of memory: ${failure?.message}`);
  }

  get maxBufferBytes(): number {
    return this.#memory.maxBlockBytes;
  }

  get freeBytes(): number {
    return this.#memory.freeBytes;
  }

  upload(buffer: F32, data: Float32Array): void {
    this.queue.write(buffer, data);
  }

  uploadInts(buffer: I32, data: Int32Array): void {
    this.queue.write(buffer, data);
  }

  async download(buffer: F32): Promise<Float32Array> {
    return new Float32Array(await this.queue.read(buffer));
  }

  async downloadInts(buffer: I32): Promise<Int32Array> {
    return new Int32Array(await this.queue.read(buffer));
  }

  frozen(inputs: number, outputs: number, dtype: SafetensorsDtype): Frozen {
    const { bytes, ...layout } = frozenLayout(inputs, outputs, dtype);
    const matrix: GpuFrozen = {
      kind: "frozen",
      offset: 0,
      inputs,
      outputs,
      ...layout,
      block: this.#memory.alloc(bytes),
    };
    return matrix;
  }

  fill(matrix: Frozen, firstOutput: number, tensor: StoredTensor): Promise<void> {
    return fillFrozen(this.queue, matrix as GpuFrozen, firstOutput, tensor);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.queue.fail("The engine was closed");
    this.gpu.device.destroy();
  }

  #handle(
    kind: "f32" | "i32",
    block: ReturnType<DeviceMemory["alloc"]>,
    offset: number,
    length: number,
  ): F32 | I32 {
    const handle = { kind, offset, length, block };
    return handle;
  }
}
