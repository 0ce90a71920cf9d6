import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { GGML_TYPES, type GgmlTypeName } from "./ggml-types.js";

const ROW_VALUES = 1024;

/** Rows from large to tiny values, one of zeros, one of equal values, one without negative ones. */
function rows(): Float32Array {
  let state = 1;
  return Float32Array.from({ length: 16 * ROW_VALUES }, (_, index) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const row = Math.floor(index / ROW_VALUES);
    const value = ((state >>> 8) / 2 ** 23 - 1) * 2 ** -row;
    if (row === 3) return 0;
    if (row === 4) return 0.25;
    return row === 5 ? Math.abs(value) : value;
  });
}

describe("quantized rows", () => {
  // Digests of what `ggml_quantize_chunk` of llama.cpp writes for these rows.
  it.each([
    ["q4_0", "e49810a14720a3d0aff1b2b717dccef6"],
    ["q5_0", "99ded2eb4fbd27c295b7d933274bd146"],
    ["q8_0", "2fad5196e57cd3ebf1291d5c28252ce7"],
    ["q4_K", "73c2ed2367cb5bc02e97143d335fb878"],
    ["q6_K", "4a4c030666038850368594b4cf571bc1"],
  ] as const satisfies [GgmlTypeName, string][])(
    "are those of llama.cpp, bit for bit (%s)",
    (type, digest) => {
      const bytes = GGML_TYPES[type].quantize(rows());
      expect(createHash("sha256").update(bytes).digest("hex").slice(0, 32)).toBe(digest);
    },
  );
});
