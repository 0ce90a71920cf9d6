import { readFileSync } from "node:fs";
import { toFloat16, toFloat32 } from "../safetensors.js";

/** Values in a block of the types here: groups of values share a scale, and the groups' scales share another. */
export const K_BLOCK_VALUES = 256;

const { fround, abs } = Math;
/** Added and subtracted again, it rounds a float32 to the nearest integer, halves to even. */
const ROUNDING = 12582912;
const LEAST_EXTENT = fround(1e-15);

const GROUPS_OF_Q4 = 8;
const GROUP_VALUES_OF_Q4 = 32;
const MOST_LEVEL_OF_Q4 = 15;

/** 4 bits a value, with a scale and an offset for 32 values: 144 bytes for 256, as llama.cpp quantizes without an importance matrix. */
export function quantizeQ4K(values: Float32Array): Uint8Array {
  const blocks = values.length / K_BLOCK_VALUES;
  const groups = blocks * GROUPS_OF_Q4;
  const { scales, offsets, levels } = fitGroups(values, GROUP_VALUES_OF_Q4);
  const most = new Float32Array(2 * blocks);
  for (let group = 0; group < groups; group++) {
    const at = 2 * Math.floor(group / GROUPS_OF_Q4);
    if (scales[group]! > most[at]!) most[at] = scales[group]!;
    if (offsets[group]! > most[at + 1]!) most[at + 1] = offsets[group]!;
  }
  const halves = toFloat16(most.map((value) => fround(value / 63)));
  const stored = toFloat32(halves, "F16", "scales");
  const out = new Uint8Array(blocks * 144);
  for (let block = 0; block < blocks; block++) {
    const at = block * 144;
    out.set(halves.subarray(4 * block, 4 * block + 4), at);
    const inverse = inverseOf63(most[2 * block]!);
    const inverseOffset = inverseOf63(most[2 * block + 1]!);
    for (let j = 0; j < GROUPS_OF_Q4; j++) {
      const group = block * GROUPS_OF_Q4 + j;
      const scale = Math.min(63, nearest(fround(inverse * scales[group]!)));
      const offset = Math.min(63, nearest(fround(inverseOffset * offsets[group]!)));
      packSixBits(out, at + 4, j, scale, offset);
      const step = fround(stored[2 * block]! * scale);
      if (step === 0) continue;
      const shift = fround(stored[2 * block + 1]! * offset);
      const start = group * GROUP_VALUES_OF_Q4;
      for (let i = start; i < start + GROUP_VALUES_OF_Q4; i++) {
        const level = nearest(fround(fround(values[i]! + shift) / step));
        levels[i] = level < 0 ? 0 : level > MOST_LEVEL_OF_Q4 ? MOST_LEVEL_OF_Q4 : level;
      }
    }
    for (let j = 0; j < 4; j++) {
      const from = block * K_BLOCK_VALUES + 64 * j;
      for (let i = 0; i < 32; i++) {
        out[at + 16 + 32 * j + i] = levels[from + i]! | (levels[from + 32 + i]! << 4);
      }
    }
  }
  return out;
}

const GROUP_VALUES_OF_Q6 = 16;
const GROUPS_OF_Q6 = 16;

/** 6 bits a value, with a scale for 16 values: 210 bytes for 256, as llama.cpp quantizes without an importance matrix. */
export function quantizeQ6K(values: Float32Array): Uint8Array {
  const blocks = values.length / K_BLOCK_VALUES;
  const { scales, levels } = fitGroups(values, GROUP_VALUES_OF_Q6);
  const inverses = new Float32Array(blocks);
  const blockScales = new Float32Array(blocks);
  for (let block = 0; block < blocks; block++) {
    let extreme = 0;
    for (let j = 0; j < GROUPS_OF_Q6; j++) {
      const scale = scales[block * GROUPS_OF_Q6 + j]!;
      if (abs(scale) > abs(extreme)) extreme = scale;
    }
    if (abs(extreme) < LEAST_EXTENT) continue;
    inverses[block] = fround(-128 / extreme);
    blockScales[block] = fround(1 / inverses[block]!);
  }
  const halves = toFloat16(blockScales);
  const stored = toFloat32(halves, "F16", "scales");
  const out = new Uint8Array(blocks * 210);
  for (let block = 0; block < blocks; block++) {
    // A block of zeros is stored as zeros.
    if (inverses[block] === 0) continue;
    const at = block * 210;
    for (let j = 0; j < GROUPS_OF_Q6; j++) {
      const group = block * GROUPS_OF_Q6 + j;
      const scale = Math.min(127, nearest(fround(inverses[block]! * scales[group]!)));
      out[at + 192 + j] = scale;
      const step = fround(stored[block]! * scale);
      if (step === 0) continue;
      const start = group * GROUP_VALUES_OF_Q6;
      for (let i = start; i < start + GROUP_VALUES_OF_Q6; i++) {
        const level = nearest(fround(values[i]! / step));
        levels[i] = (level < -32 ? -32 : level > 31 ? 31 : level) + 32;
      }
    }
    packSixBitLevels(out, at, levels, block * K_BLOCK_VALUES);
    out[at + 208] = halves[2 * block]!;
    out[at + 209] = halves[2 * block + 1]!;
  }
  return out;
}

/** The low four bits of all values, then their high two. */
function packSixBitLevels(out: Uint8Array, at: number, levels: Uint8Array, from: number): void {
  for (let half = 0; half < 2; half++) {
    const low = at + 64 * half;
    const high = at + 128 + 32 * half;
    for (let i = 0; i < 32; i++) {
      const start = from + 128 * half + i;
      const a = levels[start]!;
      const b = levels[start + 32]!;
      const c = levels[start + 64]!;
      const d = levels[start + 96]!;
      out[low + i] = (a & 15) | ((c & 15) << 4);
      out[low + 32 + i] = (b & 15) | ((d & 15) << 4);
      out[high + i] = (a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((d >> 4) << 6);
    }
  }
}

function inverseOf63(most: number): number {
  return most > 0 ? fround(63 / most) : 0;
}

/** Eight scales and eight offsets of six bits in twelve bytes. */
function packSixBits(out: Uint8Array, at: number, j: number, scale: number, offset: number): void {
  if (j < 4) {
    out[at + j] = scale;
    out[at + 4 + j] = offset;
    return;
  }
  out[at + 4 + j] = (scale & 15) | ((offset & 15) << 4);
  out[at + j - 4]! |= (scale >> 4) << 6;
  out[at + j]! |= (offset >> 4) << 6;
}

function nearest(value: number): number {
  return fround(value + ROUNDING) - ROUNDING;
}

interface FitExports {
  readonly memory: WebAssembly.Memory;
  fitQ4(values: number, groups: number, scales: number, offsets: number, levels: number): void;
  fitQ6(values: number, groups: number, scales: number, levels: number): void;
}

const PAGE_BYTES = 1 << 16;
/** The compiled code keeps its own data below. */
const FIRST_BYTE = 4096;

let loaded: FitExports | undefined;

/** Levels of values in groups, and a scale and an offset of each group, in the memory of the compiled code. */
function fitGroups(
  values: Float32Array,
  groupValues: number,
): { scales: Float32Array; offsets: Float32Array; levels: Uint8Array } {
  loaded ??= load();
  const { memory, fitQ4, fitQ6 } = loaded;
  const groups = values.length / groupValues;
  const scalesAt = FIRST_BYTE + values.byteLength;
  const offsetsAt = scalesAt + 4 * groups;
  const levelsAt = offsetsAt + 4 * groups;
  const missing = levelsAt + values.length - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  new Float32Array(memory.buffer, FIRST_BYTE, values.length).set(values);
  if (groupValues === GROUP_VALUES_OF_Q4) fitQ4(FIRST_BYTE, groups, scalesAt, offsetsAt, levelsAt);
  else fitQ6(FIRST_BYTE, groups, scalesAt, levelsAt);
  return {
    scales: new Float32Array(memory.buffer, scalesAt, groups),
    offsets: new Float32Array(memory.buffer, offsetsAt, groups),
    levels: new Uint8Array(memory.buffer, levelsAt, values.length),
  };
}

function load(): FitExports {
  const module = new WebAssembly.Module(readFileSync(new URL("./k-quants.wasm", import.meta.url)));
  const abort = () => {
    throw new Error("the compiled quantizer failed");
  };
  return new WebAssembly.Instance(module, { env: { abort } }).exports as unknown as FitExports;
}
