import { fromFloat32, roundToBfloat16, toFloat32 } from "../safetensors.js";
import type { RowCodec } from "./row-codec.js";

const SMALLEST_SCALE = 1e-12;

/**
 * INT4 of Kimi K2: 8 values in an int32, and for each group of a row a scale in bfloat16. Tensors: `weight_packed`,
 * `weight_scale`; a third one, `weight_shape`, stays as it is.
 */
export function int4(groupSize: number): RowCodec {
  return {
    groupRows: 1,
    sizes: (rows, columns) => [(rows * columns) / 2, (2 * rows * columns) / groupSize],

    decode([packed, scales]) {
      const values = new Float32Array(2 * packed!.length);
      const factors = toFloat32(scales!, "BF16", "weight_scale");
      for (let i = 0; i < values.length; i++) {
        const bits = (packed![i >> 1]! >> (4 * (i & 1))) & 15;
        values[i] = (bits < 8 ? bits : bits - 16) * factors[Math.floor(i / groupSize)]!;
      }
      return roundToBfloat16(values);
    },

    encode(values) {
      const packed = new Uint8Array(values.length / 2);
      const scales = new Float32Array(values.length / groupSize);
      for (let group = 0; group < scales.length; group++) {
        const from = group * groupSize;
        let largest = 0;
        for (let i = from; i < from + groupSize; i++) largest = Math.max(largest, Math.abs(values[i]!));
        const scale = Math.max(Math.fround(largest / 7), Math.fround(SMALLEST_SCALE));
        scales[group] = scale;
        for (let i = from; i < from + groupSize; i++) {
          const whole = roundHalfToEven(Math.fround(values[i]! / scale));
          packed[i >> 1]! |= (Math.min(7, Math.max(-8, whole)) & 15) << (4 * (i & 1));
        }
      }
      return [packed, fromFloat32(scales, "BF16")];
    },
  };
}

/** As IEEE rounds: ties go to the even number. */
export function roundHalfToEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}
