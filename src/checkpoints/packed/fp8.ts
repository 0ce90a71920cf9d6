import { DTYPE_BYTES, type FloatDtype, fromFloat32, roundToBfloat16, toFloat32 } from "../safetensors.js";
import { roundHalfToEven } from "./int4.js";
import type { RowCodec } from "./row-codec.js";

/** Largest value of float8_e4m3fn. */
const LARGEST = 448;
const SMALLEST_SCALED = 1e-12;

/** FP8 of DeepSeek: 8 bits a value, and for each block of rows and columns a scale. Tensors: `weight`, `weight_scale_inv`. */
export function fp8(block: readonly [number, number], scaleDtype: FloatDtype): RowCodec {
  const [blockRows, blockColumns] = block;
  return {
    groupRows: blockRows,
    sizes: (rows, columns) => [
      rows * columns,
      Math.ceil(rows / blockRows) * Math.ceil(columns / blockColumns) * DTYPE_BYTES[scaleDtype],
    ],

    decode([bytes, scales], rows, columns) {
      const values = new Float32Array(bytes!.length);
      const factors = toFloat32(scales!, scaleDtype, "weight_scale_inv");
      const across = Math.ceil(columns / blockColumns);
      for (let row = 0, at = 0; row < rows; row++) {
        const from = Math.floor(row / blockRows) * across;
        for (let column = 0; column < columns; column++, at++) {
          values[at] = E4M3_VALUES[bytes![at]!]! * factors[from + Math.floor(column / blockColumns)]!;
        }
      }
      return roundToBfloat16(values);
    },

    encode(values, rows, columns) {
      const bytes = new Uint8Array(values.length);
      const across = Math.ceil(columns / blockColumns);
      const down = Math.ceil(rows / blockRows);
      const largest = new Float32Array(down * across).fill(SMALLEST_SCALED);
      const blockOf = (row: number, column: number) =>
        Math.floor(row / blockRows) * across + Math.floor(column / blockColumns);
      for (let row = 0, at = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++, at++) {
          const block = blockOf(row, column);
          largest[block] = Math.max(largest[block]!, Math.abs(values[at]!));
        }
      }
      // The Python cookbook computes scales, and what to multiply with, in bfloat16.
      const scales = roundToBfloat16(roundToBfloat16(largest).map((value) => value / LARGEST));
      const factors = roundToBfloat16(scales.map((scale) => 1 / scale));
      for (let row = 0, at = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++, at++) {
          bytes[at] = toE4m3(Math.fround(values[at]! * factors[blockOf(row, column)]!));
        }
      }
      return [bytes, fromFloat32(scales, scaleDtype)];
    },
  };
}

const E4M3_VALUES = Float32Array.from({ length: 256 }, (_, bits) => {
  const sign = bits & 0x80 ? -1 : 1;
  const exponent = (bits >> 3) & 15;
  const fraction = bits & 7;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10));
});

/** Rounds to the nearest value that has 8 bits, ties to even; larger values become the largest one. */
function toE4m3(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x80 : 0;
  const magnitude = Math.min(Math.abs(value), LARGEST);
  const exponent = Math.max(-6, Math.floor(Math.log2(magnitude)));
  const eighths = roundHalfToEven(magnitude / 2 ** (exponent - 3));
  // Of a number below the normal ones the exponent's bits are 0; a fraction that overflows carries into them.
  return sign | (((exponent + 6) << 3) + eighths);
}
