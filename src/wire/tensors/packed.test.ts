import { describe, expect, it } from "vitest";
import {
  packInt64s,
  packWords,
  unpackBfloat16s,
  unpackFloat32s,
  unpackInt32s,
  unpackInt64s,
} from "./packed.js";

/** The same bytes at an odd place of a larger buffer, as they lie in a message. */
function unaligned(bytes: Uint8Array): Uint8Array {
  const buffer = new Uint8Array(bytes.length + 3);
  buffer.set(bytes, 3);
  return buffer.subarray(3);
}

describe("packed int64", () => {
  const narrow = [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)];
  const wide = [
    2 ** 31,
    -(2 ** 31) - 1,
    2 ** 32,
    -(2 ** 32),
    2 ** 32 - 1,
    2 ** 52 + 1,
    Number.MAX_SAFE_INTEGER,
    Number.MIN_SAFE_INTEGER,
  ];

  it("is what BigInt64Array says", () => {
    const bytesOf = (values: number[]) => new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
    expect(packInt64s(Int32Array.from(narrow))).toEqual(bytesOf(narrow));
    expect(packInt64s(Float64Array.from([...narrow, ...wide]))).toEqual(bytesOf([...narrow, ...wide]));
    expect(unpackInt64s(unaligned(bytesOf(narrow)))).toEqual(Int32Array.from(narrow));
    for (const value of wide) {
      expect(unpackInt64s(unaligned(bytesOf([7, value])))).toEqual(Float64Array.of(7, value));
    }
  });

  it("refuses values beyond 2^53", () => {
    for (const value of [2n ** 53n, -(2n ** 53n), 2n ** 63n - 1n, -(2n ** 63n)]) {
      const bytes = new Uint8Array(BigInt64Array.of(1n, value).buffer);
      expect(() => unpackInt64s(bytes)).toThrow(`int64 value ${value} at index 1 is beyond 2^53`);
    }
  });
});

describe("packed 4-byte and 2-byte numbers", () => {
  it("come back as they were, from any place in a buffer", () => {
    const floats = Float32Array.of(0, -0, 1.5, Number.NaN, Number.NEGATIVE_INFINITY);
    expect(unpackFloat32s(unaligned(packWords(floats)))).toEqual(floats);
    const integers = Int32Array.of(0, -1, 2 ** 31 - 1);
    expect(unpackInt32s(unaligned(packWords(integers)))).toEqual(integers);
    expect(packWords(integers.subarray(1, 2))).toEqual(Uint8Array.of(255, 255, 255, 255));
  });

  it("widen bfloat16 by its upper half", () => {
    expect([...unpackBfloat16s(unaligned(Uint8Array.of(0x80, 0x3f, 0x20, 0xc0, 0x80, 0xff)))]).toEqual([
      1,
      -2.5,
      Number.NEGATIVE_INFINITY,
    ]);
  });

  it("refuse a cut list", () => {
    expect(() => unpackFloat32s(new Uint8Array(6))).toThrow("6 bytes are not a list of float32 values");
    expect(() => unpackInt64s(new Uint8Array(12))).toThrow("12 bytes are not a list of int64 values");
    expect(() => unpackBfloat16s(new Uint8Array(3))).toThrow("3 bytes are not a list of bfloat16 values");
  });
});
