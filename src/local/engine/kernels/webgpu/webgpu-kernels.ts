import type { SafetensorsDtype } from "../../../../checkpoints/safetensors.js";
import type {
  AdamWStep,
  Attention,
  AttentionBackward,
  AttentionPaged,
  ChooseTokens,
  EngineLostError,
  F32,
  Frozen,
  I32,
  Kernels,
  LogitsGradient,
  LogSoftmaxGather,
  MatmulOptions,
  Matrix,
  NormRope,
  NormRopeBackward,
  RmsNorm,
  RmsNormBackward,
  RotateIntoPages,
  Rows,
  StepSizes,
  StoredTensor,
  TokenGradients,
  TopTokens,
} from "../kernels.js";
import { rotateIntoPages as rotateOneByOne } from "../rotate-into-pages.js";
import { attention } from "./attention.js";
import { attentionBackward } from "./attention-backward.js";
import { chooseTokens, topTokens } from "./choose-tokens.js";
import { CommandQueue } from "./command-queue.js";
import { DeviceMemory, onDevice } from "./device-memory.js";
import { adamw, add, addScaled, copy, scale, sumSquares, zero } from "./elementwise.js";
import { fillFrozen, frozenLayout, type GpuFrozen } from "./frozen.js";
import { gatherRows, scatterAddRows, scatterRows } from "./gather-rows.js";
import type { GpuDevice } from "./gpu-device.js";
import { attentionPaged } from "./paged-attention.js";
import { matmul } from "./products.js";
import { normRope, normRopeBackward } from "./rotary.js";
import { ROTATED_BUFFERS, rotateIntoPages } from "./rotate-into-pages.js";
import { rmsNorm, rmsNormBackward, swiglu, swigluBackward } from "./rows.js";
import { tokenGradients } from "./token-gradients.js";
import { logitsGradient, logSoftmaxGather } from "./vocabulary.js";

/** What every operation of these kernels gets: where to record, scratch of its own, and what the device can do. */
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

/** What one operation holds: parts of sums, or the side of a product in float16, of which the head's gradient is the largest. */
const WORKSPACE_BYTES = 384 << 20;
/** Of each value of a side in float16, which long sequences make larger than that; rows are rounded up. */
const FLOAT16_BYTES = 2.25;

/** Kernels in WGSL on a graphics card. */
export function createWebGpuKernels(gpu: GpuDevice): Kernels {
  return new WebGpuKernels(gpu);
}

class WebGpuKernels implements Kernels, GpuContext {
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
    this.#memory = new DeviceMemory(device, gpu.memoryBytes, () => {
      this.queue.flush();
      this.queue.forgetBindGroups();
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
      // Of what models and adapters leave; the rest is for keys and values.
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
    // What operations take for themselves was not counted.
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

  // --- products -------------------------------------------------------------------------------------------------
  matmul(c: F32, a: F32, b: Matrix, m: number, n: number, k: number, options: MatmulOptions = {}): void {
    matmul(this, { c, a, b, m, n, k, ...options });
  }

  // --- rows -----------------------------------------------------------------------------------------------------
  rmsNorm(operation: RmsNorm): void {
    rmsNorm(this, operation);
  }

  rmsNormBackward(operation: RmsNormBackward): void {
    rmsNormBackward(this, operation);
  }

  normRope(operation: NormRope): void {
    normRope(this, operation);
  }

  normRopeBackward(operation: NormRopeBackward): void {
    normRopeBackward(this, operation);
  }

  swiglu(out: F32, gateUp: F32, rows: number, cols: number): void {
    swiglu(this, out, gateUp, rows, cols);
  }

  swigluBackward(dgateUp: F32, dout: F32, gateUp: F32, rows: number, cols: number): void {
    swigluBackward(this, dgateUp, dout, gateUp, rows, cols);
  }

  gatherRows(out: F32, table: Matrix, indices: I32, rows: number, cols: number): void {
    gatherRows(this, out, table, indices, rows, cols);
  }

  scatterRows(table: F32, x: Rows, indices: I32, rows: number, cols: number): void {
    scatterRows(this, table, x, indices, rows, cols);
  }

  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void {
    scatterAddRows(this, table, x, indices, rows, cols);
  }

  // --- attention ------------------------------------------------------------------------------------------------
  attention(operation: Attention): void {
    attention(this, operation);
  }

  attentionBackward(operation: AttentionBackward): void {
    attentionBackward(this, operation);
  }

  rotateIntoPages(operation: RotateIntoPages): void {
    const isOneRun = this.gpu.device.limits.maxStorageBuffersPerShaderStage >= ROTATED_BUFFERS;
    if (isOneRun) rotateIntoPages(this, operation);
    else rotateOneByOne(this, operation);
  }

  attentionPaged(operation: AttentionPaged): void {
    attentionPaged(this, operation);
  }

  // --- vocabulary -----------------------------------------------------------------------------------------------
  logSoftmaxGather(operation: LogSoftmaxGather): void {
    logSoftmaxGather(this, operation);
  }

  logitsGradient(operation: LogitsGradient): void {
    logitsGradient(this, operation);
  }

  tokenGradients(operation: TokenGradients): void {
    tokenGradients(this, operation);
  }

  chooseTokens(operation: ChooseTokens): void {
    chooseTokens(this, operation);
  }

  topTokens(operation: TopTokens): void {
    topTokens(this, operation);
  }

  // --- whole buffers --------------------------------------------------------------------------------------------
  zero(x: F32): void {
    zero(this, x);
  }

  copy(out: F32, x: F32): void {
    copy(this, out, x);
  }

  add(out: F32, a: F32, b: F32): void {
    add(this, out, a, b);
  }

  addScaled(y: F32, x: F32, factor: number): void {
    addScaled(this, y, x, factor);
  }

  scale(x: F32, factor: number): void {
    scale(this, x, factor);
  }

  sumSquares(x: F32): Promise<number> {
    return sumSquares(this, x);
  }

  adamw(weights: F32, grad: F32, first: F32, second: F32, step: AdamWStep): void {
    adamw(this, weights, grad, first, second, step);
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
