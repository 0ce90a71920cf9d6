import { Buffer } from "node:buffer";
import { describe, expect, it } from "vitest";
import { base64ToBytes, bytesToBase64 } from "./base64.js";

describe("base64", () => {
  it("agrees with Node's own for every length and byte", () => {
    for (let length = 0; length < 70; length++) {
      const bytes = Uint8Array.from({ length }, (_, index) => (index * 97 + length * 31) & 255);
      const text = bytesToBase64(bytes);
      expect(text).toBe(Buffer.from(bytes).toString("base64"));
      expect(base64ToBytes(text)).toEqual(bytes);
    }
  });

  it.each(["a", "ab", "abc", "ab=c", "a===", "=abc", "ab!d", "ab d", "äbcd", "ab_d", "abcd\n"])(
    "refuses %j",
    (text) => {
      expect(() => base64ToBytes(text)).toThrow(/base64/);
    },
  );
});
