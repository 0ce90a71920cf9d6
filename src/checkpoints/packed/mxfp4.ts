import { roundToBfloat16 } from "../safetensors.js";
import type { RowCodec } from "./row-codec.js";

/** Values that share a scale. */
export const MXFP4_BLOCK = 32;
const MAGNITUDES = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const LARGEST = 6;
const SMALLEST_SCALED = 1e-12;
const SCALE_BIAS = 127;

/** MXFP4 of gpt-oss: 4 bits a value, and for each 32 of a row a power of two. Tensors: `_blocks`, `_scales`. */
export const mxfp4: RowCodec = {
  groupRows: 1,
  sizes: (rows, columns) => [(rows * columns) / 2, (rows * columns) / MXFP4_BLOCK],

  decode([blocks, scales]) {
    const values = new Float32Array(2 * blocks!.length);
    for (let block = 0; block < scales!.length; block++) {
      const scale = 2 ** (scales![block]! - SCALE_BIAS);
      for (let i = (block * MXFP4_BLOCK) / 2; i < ((block + 1) * MXFP4_BLOCK) / 2; i++) {
        values[2 * i] = decodeBits(blocks![i]! & 15) * scale;
        values[2 * i + 1] = decodeBits(blocks![i]! >> 4) * scale;
      }
    }
    return roundToBfloat16(values);
  },

  encode(values) {
    const blocks = new Uint8Array(values.length / 2);
    const scales = new Uint8Array(values.length / MXFP4_BLOCK);
    for (let block = 0; block < scales.length; block++) {
      const from = block * MXFP4_BLOCK;
      let largest = SMALLEST_SCALED;
      for (let i = from; i < from + MXFP4_BLOCK; i++) largest = Math.max(largest, Math.abs(values[i]!));
      const exponent = Math.min(127, Math.max(-127, Math.ceil(Math.log2(Math.fround(largest / LARGEST)))));
      scales[block] = exponent + SCALE_BIAS;
      const scale = 2 ** exponent;
      for (let i = from; i < from + MXFP4_BLOCK; i += 2) {
        blocks[i / 2] = nearest(values[i]! / scale) | (nearest(values[i + 1]! / scale) << 4);
      }
    }
    return [blocks, scales];
  },
};

function decodeBits(bits: number): number {
  const magnitude = MAGNITUDES[bits & 7]!;
  return bits & 8 ? -magnitude || 0 : magnitude;
}

/** The nearest value's 4 bits; of two as near, the smaller one; zero is positive. */
function nearest(value: number): number {
  const magnitude = Math.abs(value);
  let bits = 0;
  while (bits < 7 && magnitude > (MAGNITUDES[bits]! + MAGNITUDES[bits + 1]!) / 2) bits += 1;
  return value < 0 && bits > 0 ? bits | 8 : bits;
}
