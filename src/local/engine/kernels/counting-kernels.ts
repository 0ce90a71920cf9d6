import { alignedBytes } from "./arena.js";
import type { F32, Frozen, I32, Kernels, StepSizes } from "./kernels.js";

/** Computes nothing and only counts, so that the memory of a pass is known before it runs; results are zeros. */
export class CountingKernels implements Kernels {
  readonly name = "counting";
  readonly threads = 1;
  readonly sizes: StepSizes;
  readonly allocatedBytes = 0;
  readonly reservedBytes = 0;
  /** The most scratch that was taken at one time. */
  mostScratchBytes = 0;
  /** The largest piece of it. */
  largestPieceBytes = 0;
  #scratchBytes = 0;

  /** `sizes` are those of the kernels that it counts for. */
  constructor(sizes: StepSizes) {
    this.sizes = sizes;
  }

  alloc(length: number): F32 {
    return { kind: "f32", offset: 0, length };
  }

  allocInts(length: number): I32 {
    return { kind: "i32", offset: 0, length };
  }

  mark(): number {
    return this.#scratchBytes;
  }

  scratch(length: number): F32 {
    this.#take(length);
    return this.alloc(length);
  }

  scratchInts(length: number): I32 {
    this.#take(length);
    return this.allocInts(length);
  }

  release(mark: number): void {
    this.#scratchBytes = mark;
  }

  async download(buffer: F32): Promise<Float32Array> {
    return new Float32Array(buffer.length);
  }

  async downloadInts(buffer: I32): Promise<Int32Array> {
    return new Int32Array(buffer.length);
  }

  frozen(inputs: number, outputs: number): Frozen {
    return { kind: "frozen", offset: 0, inputs, outputs };
  }

  async sumSquares(): Promise<number> {
    return 0;
  }

  async reserveScratch(): Promise<void> {}
  async fill(): Promise<void> {}
  async close(): Promise<void> {}

  free(): void {}
  upload(): void {}
  uploadInts(): void {}
  matmul(): void {}
  rmsNorm(): void {}
  rmsNormBackward(): void {}
  normRope(): void {}
  normRopeBackward(): void {}
  swiglu(): void {}
  swigluBackward(): void {}
  gatherRows(): void {}
  scatterRows(): void {}
  scatterAddRows(): void {}
  attention(): void {}
  attentionBackward(): void {}
  attentionPaged(): void {}
  rotateIntoPages(): void {}
  logSoftmaxGather(): void {}
  logitsGradient(): void {}
  tokenGradients(): void {}
  chooseTokens(): void {}
  topTokens(): void {}
  zero(): void {}
  copy(): void {}
  add(): void {}
  addScaled(): void {}
  scale(): void {}
  adamw(): void {}

  #take(length: number): void {
    this.#scratchBytes += alignedBytes(4 * length);
    this.largestPieceBytes = Math.max(this.largestPieceBytes, 4 * length);
    this.mostScratchBytes = Math.max(this.mostScratchBytes, this.#scratchBytes);
  }
}
