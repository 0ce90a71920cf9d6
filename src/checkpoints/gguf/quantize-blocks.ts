import { toFloat16 } from "../safetensors.js";

/** Values in a block of the types here; each block has a scale of its own. */
const BLOCK_VALUES = 32;
const { fround, abs, min, trunc } = Math;

/** 8 bits a value: 34 bytes for 32 values, bit for bit as llama.cpp quantizes. */
export function quantizeQ8(values: Float32Array): Uint8Array {
  return quantizeBlocks(values, 34, (block, out, at) => {
    let largest = 0;
    for (let i = 0; i < BLOCK_VALUES; i++) {
      const size = abs(block[i]!);
      if (size > largest) largest = size;
    }
    const scale = fround(largest / 127);
    const inverse = scale === 0 ? 0 : fround(1 / scale);
    for (let i = 0; i < BLOCK_VALUES; i++) out[at + 2 + i] = roundAway(fround(block[i]! * inverse));
    return scale;
  });
}

/** 4 bits a value: 18 bytes for 32 values, bit for bit as llama.cpp quantizes. */
export function quantizeQ4(values: Float32Array): Uint8Array {
  return quantizeBlocks(values, 18, (block, out, at) => {
    const scale = fround(extreme(block) / -8);
    const inverse = scale === 0 ? 0 : fround(1 / scale);
    const level = (i: number) => min(15, trunc(fround(fround(block[i]! * inverse) + 8.5)));
    for (let i = 0; i < 16; i++) out[at + 2 + i] = level(i) | (level(i + 16) << 4);
    return scale;
  });
}

/** 5 bits a value: 22 bytes for 32 values, bit for bit as llama.cpp quantizes. */
export function quantizeQ5(values: Float32Array): Uint8Array {
  return quantizeBlocks(values, 22, (block, out, at) => {
    const scale = fround(extreme(block) / -16);
    const inverse = scale === 0 ? 0 : fround(1 / scale);
    const level = (i: number) => min(31, trunc(fround(fround(block[i]! * inverse) + 16.5)));
    for (let i = 0; i < 16; i++) {
      const low = level(i);
      const high = level(i + 16);
      out[at + 6 + i] = (low & 15) | ((high & 15) << 4);
      // The fifth bits of all values, one after the other.
      out[at + 2 + (i >> 3)]! |= (low >> 4) << (i & 7);
      out[at + 4 + (i >> 3)]! |= (high >> 4) << (i & 7);
    }
    return scale;
  });
}

type QuantizeBlock = (block: Float32Array, out: Uint8Array, at: number) => number;

/** Quantizes block by block; each begins with its scale in 16 bits, which `quantize` returns. */
function quantizeBlocks(values: Float32Array, blockBytes: number, quantize: QuantizeBlock): Uint8Array {
  const blocks = values.length / BLOCK_VALUES;
  const out = new Uint8Array(blocks * blockBytes);
  const scales = new Float32Array(blocks);
  const block = new Float32Array(BLOCK_VALUES);
  for (let index = 0; index < blocks; index++) {
    const start = index * BLOCK_VALUES;
    for (let i = 0; i < BLOCK_VALUES; i++) block[i] = values[start + i]!;
    scales[index] = quantize(block, out, index * blockBytes);
  }
  const halves = toFloat16(scales);
  for (let index = 0; index < blocks; index++) {
    out[index * blockBytes] = halves[2 * index]!;
    out[index * blockBytes + 1] = halves[2 * index + 1]!;
  }
  return out;
}

/** The value that is farthest from 0, the first of several. */
function extreme(block: Float32Array): number {
  let largest = 0;
  let value = 0;
  for (let i = 0; i < BLOCK_VALUES; i++) {
    if (abs(block[i]!) <= largest) continue;
    largest = abs(block[i]!);
    value = block[i]!;
  }
  return value;
}

/** To the nearest integer, halves away from 0; the sum is exact in float64. */
function roundAway(value: number): number {
  return (value < 0 ? value - 0.5 : value + 0.5) | 0;
}
