import { type F32, type Kernels, partsOf, sliceBuffer } from "../kernels/kernels.js";
import type { ModelConfig } from "./model-config.js";

const f32 = Math.fround;

/** Frequencies as Hugging Face computes them: every step is rounded to float32, which far positions feel. */
export function inverseFrequencies(config: ModelConfig): Float32Array {
  const half = config.headDim / 2;
  const frequencies = new Float32Array(half);
  for (let i = 0; i < half; i++) {
    frequencies[i] = 1 / f32(config.ropeTheta ** f32((2 * i) / config.headDim));
  }
  const scaling = config.ropeScaling;
  if (!scaling) return frequencies;
  return frequencies.map((frequency) => {
    if (scaling.type === "linear") return frequency / scaling.factor;
    const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
    const wavelength = f32((2 * Math.PI) / frequency);
    if (wavelength > originalMaxPositions / lowFreqFactor) return frequency / factor;
    if (wavelength < originalMaxPositions / highFreqFactor) return frequency;
    const above = f32(f32(originalMaxPositions / wavelength) - lowFreqFactor);
    const smooth = f32(above / (highFreqFactor - lowFreqFactor));
    return f32(f32(f32(1 - smooth) * frequency) / factor) + f32(smooth * frequency);
  });
}

/** Tables that grow with the longest position seen, so that a long-context model starts as fast as a short one. */
export class RopeTables {
  readonly #kernels: Kernels;
  readonly #frequencies: Float32Array;
  readonly #maxPositions: number;
  #positions = 0;
  /** Both in one buffer, so that an operation needs one binding for them. */
  #tables: { all: F32; cos: F32; sin: F32 } | undefined;

  constructor(kernels: Kernels, config: ModelConfig) {
    this.#kernels = kernels;
    this.#frequencies = inverseFrequencies(config);
    this.#maxPositions = config.maxPositions;
  }

  /** Cosines and sines of all positions below `length`, and perhaps more. */
  upTo(length: number): { cos: F32; sin: F32 } {
    if (!this.#tables || length > this.#positions) {
      this.#free();
      const wanted = 1 << Math.ceil(Math.log2(Math.max(length, 256)));
      this.#positions = Math.max(length, Math.min(wanted, this.#maxPositions));
      const half = this.#frequencies.length;
      const count = this.#positions * half;
      const { starts, length: floats } = partsOf([count, count]);
      const [cosAt, sinAt] = starts;
      const values = new Float32Array(floats);
      for (let position = 0; position < this.#positions; position++) {
        for (let i = 0; i < half; i++) {
          const angle = Math.fround(position * this.#frequencies[i]!);
          values[cosAt + position * half + i] = Math.cos(angle);
          values[sinAt + position * half + i] = Math.sin(angle);
        }
      }
      const all = this.#kernels.alloc(floats);
      this.#tables = { all, cos: sliceBuffer(all, cosAt, count), sin: sliceBuffer(all, sinAt, count) };
      this.#kernels.upload(all, values);
    }
    return this.#tables;
  }

  #free(): void {
    if (!this.#tables) return;
    this.#kernels.free(this.#tables.all);
    this.#tables = undefined;
  }
}
