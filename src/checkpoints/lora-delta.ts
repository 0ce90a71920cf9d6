import { TinkerError } from "../errors.js";
import type { FloatTensor } from "./safetensors.js";

/** What LoRA adds to one weight matrix: scale * B A. */
export interface LoraDelta {
  /** [rank, inputs] */
  readonly a: FloatTensor;
  /** [outputs, rank] */
  readonly b: FloatTensor;
  readonly scale: number;
}

export function checkDelta(name: string, shape: readonly number[], { a, b }: LoraDelta): void {
  const [outputs, inputs] = shape;
  const fits =
    shape.length === 2 &&
    a.shape.length === 2 &&
    b.shape.length === 2 &&
    a.shape[1] === inputs &&
    b.shape[0] === outputs &&
    a.shape[0] === b.shape[1];
  if (!fits) {
    throw new TinkerError(
      `The adapter does not fit ${name} of shape [${shape}]: its lora_A has [${a.shape}], its lora_B [${b.shape}].`,
    );
  }
}

/** Adds the delta's rows from `firstRow` on to as many rows of the weight. */
export function addDeltaRows(rows: Float32Array, firstRow: number, { a, b, scale }: LoraDelta): void {
  const [rank, inputs] = a.shape as [number, number];
  const sum = new Float64Array(inputs);
  for (let start = 0, row = firstRow; start < rows.length; start += inputs, row++) {
    sum.fill(0);
    for (let k = 0; k < rank; k++) {
      const factor = b.data[row * rank + k]!;
      const from = k * inputs;
      for (let j = 0; j < inputs; j++) sum[j]! += factor * a.data[from + j]!;
    }
    for (let j = 0; j < inputs; j++) rows[start + j] = rows[start + j]! + scale * sum[j]!;
  }
}
