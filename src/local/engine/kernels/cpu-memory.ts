import { DTYPE_BYTES, type SafetensorsDtype, toFloat32 } from "../../../checkpoints/safetensors.js";
import { Arena, ScratchStack } from "./arena.js";
import type {
  ChooseTokens,
  F32,
  Frozen,
  I32,
  StepSizes,
  StoredTensor,
  TokenGradients,
  TopTokensOperation,
} from "./kernels.js";
import { chooseToken, topTokensOf } from "./token-choice.js";
import { tokenLosses } from "./token-losses.js";

const SIZES: StepSizes = {
  trainingTokens: 1024,
  sharedTrainingTokens: 256,
  trainingBytes: 512 << 20,
  headLogits: 1 << 19,
  samples: 128,
  promptRows: 256,
  promptLogits: 1 << 21,
};
/** Values of a tensor that are widened to float32 at a time. */
const FILL_VALUES = 1 << 20;

/** The memory of `Kernels` where it is memory of this process: one buffer that grows, an arena and a stack in it. */
export abstract class CpuMemory {
  readonly sizes = SIZES;
  protected readonly arena: Arena;
  readonly #stack: ScratchStack;

  /** The first `reservedBytes` are left to the implementation. */
  constructor(reservedBytes: number, scratchBlockBytes?: number) {
    this.arena = new Arena((bytes) => this.ensure(bytes), reservedBytes);
    this.#stack = new ScratchStack(this.arena, scratchBlockBytes);
  }

  /** Covers all of the memory as of the last growth. */
  protected abstract readonly buffer: ArrayBufferLike;

  /** Makes the memory at least `bytes` long, or throws. */
  protected abstract ensure(bytes: number): void;

  get allocatedBytes(): number {
    return this.arena.allocatedBytes - this.#stack.bytes;
  }

  get reservedBytes(): number {
    return this.buffer.byteLength;
  }

  alloc(length: number): F32 {
    const handle: F32 = { kind: "f32", offset: this.arena.alloc(4 * length), length };
    this.view(handle).fill(0);
    return handle;
  }

  allocInts(length: number): I32 {
    const handle: I32 = { kind: "i32", offset: this.arena.alloc(4 * length), length };
    this.viewInts(handle).fill(0);
    return handle;
  }

  free(buffer: F32 | I32): void {
    this.arena.free(buffer.offset);
  }

  mark(): number {
    return this.#stack.mark();
  }

  scratch(length: number): F32 {
    return { kind: "f32", offset: this.#stack.take(4 * length), length };
  }

  scratchInts(length: number): I32 {
    return { kind: "i32", offset: this.#stack.take(4 * length), length };
  }

  async reserveScratch(length: number): Promise<void> {
    this.#stack.reserve(4 * length);
  }

  release(mark: number): void {
    this.#stack.release(mark);
  }

  view(buffer: F32): Float32Array {
    return new Float32Array(this.buffer, buffer.offset, buffer.length);
  }

  viewInts(buffer: I32): Int32Array {
    return new Int32Array(this.buffer, buffer.offset, buffer.length);
  }

  upload(buffer: F32, data: Float32Array): void {
    this.view(buffer).set(data);
  }

  uploadInts(buffer: I32, data: Int32Array): void {
    this.viewInts(buffer).set(data);
  }

  async download(buffer: F32): Promise<Float32Array> {
    return new Float32Array(this.view(buffer));
  }

  tokenGradients({ gradients, logprobs, loss, inputs, count }: TokenGradients): void {
    const values = {
      weights: this.view(inputs.weights),
      advantages: this.view(inputs.advantages),
      logprobs: this.view(inputs.logprobs),
      clipLowThreshold: this.view(inputs.clipLowThreshold),
      clipHighThreshold: this.view(inputs.clipHighThreshold),
      beta: inputs.beta,
    };
    const unused = { loss: 0, clippedTokens: 0 };
    this.view(gradients).set(tokenLosses(loss, values, this.view(logprobs).subarray(0, count), unused));
  }

  frozen(inputs: number, outputs: number, _dtype: SafetensorsDtype): Frozen {
    return { kind: "frozen", offset: this.arena.alloc(4 * inputs * outputs), inputs, outputs };
  }

  /** Straight into place, some rows at a time: a second copy of a large matrix might not fit. */
  async fill(matrix: Frozen, firstOutput: number, tensor: StoredTensor): Promise<void> {
    const { inputs, outputs } = matrix;
    const { dtype, shape, bytes } = tensor;
    const [rows = 0, columns] = shape;
    if (shape.length !== 2 || columns !== inputs || firstOutput + rows > outputs) {
      throw new RangeError(`a tensor of [${shape}] at output ${firstOutput} of [${outputs}, ${inputs}]`);
    }
    const rowBytes = inputs * DTYPE_BYTES[dtype];
    const pieceRows = Math.max(1, Math.floor(FILL_VALUES / inputs));
    for (let start = 0; start < rows; start += pieceRows) {
      const count = Math.min(pieceRows, rows - start);
      const piece = bytes.subarray(start * rowBytes, (start + count) * rowBytes);
      const values = toFloat32(piece, dtype, "a weight");
      for (let row = 0; row < count; row++) {
        const weights = values.subarray(row * inputs, (row + 1) * inputs);
        this.writeOutput(matrix, firstOutput + start + row, weights);
      }
    }
  }

  /** Puts the weights of one output where products look for them. */
  protected abstract writeOutput(matrix: Frozen, output: number, weights: Float32Array): void;

  async downloadInts(buffer: I32): Promise<Int32Array> {
    return new Int32Array(this.viewInts(buffer));
  }

  chooseTokens({ tokens, logprobs, logits, logSumExp, vocabSize, draws }: ChooseTokens): void {
    const [chosen, scores, sums] = [this.viewInts(tokens), this.view(logprobs), this.view(logSumExp)];
    const values = this.view(logits);
    draws.forEach((draw, index) => {
      const row = values.subarray(draw.row * vocabSize, (draw.row + 1) * vocabSize);
      const token = chooseToken(row, draw, draw.random);
      chosen[index] = token;
      scores[index] = row[token]! - sums[draw.row]!;
    });
  }

  topTokens({ tokens, logprobs, logits, logSumExp, rows, vocabSize, columns }: TopTokensOperation): void {
    const [chosen, scores, sums] = [this.viewInts(tokens), this.view(logprobs), this.view(logSumExp)];
    const values = this.view(logits);
    for (let row = 0; row < rows; row++) {
      const start = row * vocabSize;
      topTokensOf(values.subarray(start, start + vocabSize), columns).forEach((token, column) => {
        chosen[row * columns + column] = token;
        scores[row * columns + column] = values[start + token]! - sums[row]!;
      });
    }
  }
}
