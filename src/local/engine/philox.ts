/** Names one draw: the same seed and counter give the same numbers. */
export type Counter = readonly [number, number, number, number];

const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;

/** Four random 32-bit words as a function of (seed, counter), Philox 4x32-10, so that no draw depends on another. */
export function philox(seed: number, counter: Counter): [number, number, number, number] {
  let key0 = seed >>> 0;
  let key1 = Math.floor(seed / 0x1_0000_0000) >>> 0;
  let [a, b, c, d] = [counter[0] >>> 0, counter[1] >>> 0, counter[2] >>> 0, counter[3] >>> 0];
  for (let round = 0; round < 10; round++) {
    const high0 = multiplyHigh(MULTIPLIER_0, a);
    const low0 = Math.imul(MULTIPLIER_0, a) >>> 0;
    const high1 = multiplyHigh(MULTIPLIER_1, c);
    const low1 = Math.imul(MULTIPLIER_1, c) >>> 0;
    [a, b, c, d] = [(high1 ^ b ^ key0) >>> 0, low1, (high0 ^ d ^ key1) >>> 0, low0];
    key0 = (key0 + WEYL_0) >>> 0;
    key1 = (key1 + WEYL_1) >>> 0;
  }
  return [a, b, c, d];
}

/** Uniform in [0, 1) with 53 random bits. */
export function uniform(seed: number, counter: Counter): number {
  const [a, b] = philox(seed, counter);
  return ((a >>> 5) * 0x400_0000 + (b >>> 6)) / 0x20_0000_0000_0000;
}

/** `length` floats uniform in [-bound, bound), from the stream with this number. */
export function uniformArray(length: number, bound: number, seed: number, stream: number): Float32Array {
  const out = new Float32Array(length);
  for (let i = 0; i < length; i += 4) {
    const words = philox(seed, [i / 4, 0, stream, 0x4c6f5241]);
    for (let lane = 0; lane < 4 && i + lane < length; lane++) {
      out[i + lane] = (words[lane]! / 0x8000_0000 - 1) * bound;
    }
  }
  return out;
}

/** `length` floats from a normal distribution, from the stream with this number. */
export function normalArray(length: number, deviation: number, seed: number, stream: number): Float32Array {
  const out = new Float32Array(length);
  for (let i = 0; i < length; i += 2) {
    const [a, b] = philox(seed, [i / 2, 0, stream, 0x4e6f726d]);
    const radius = Math.sqrt(-2 * Math.log((a + 0.5) / 0x1_0000_0000)) * deviation;
    const angle = (2 * Math.PI * b) / 0x1_0000_0000;
    out[i] = radius * Math.cos(angle);
    if (i + 1 < length) out[i + 1] = radius * Math.sin(angle);
  }
  return out;
}

function multiplyHigh(x: number, y: number): number {
  const x0 = x & 0xffff;
  const x1 = x >>> 16;
  const y0 = y & 0xffff;
  const y1 = y >>> 16;
  const low = x0 * y0;
  const middle1 = x1 * y0 + (low >>> 16);
  const middle2 = x0 * y1 + (middle1 % 0x10000);
  return (x1 * y1 + Math.floor(middle1 / 0x10000) + Math.floor(middle2 / 0x10000)) >>> 0;
}
