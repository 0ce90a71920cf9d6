import { describe, expect, it } from "vitest";
import { meanOf, passAtK, standardError, usualKs } from "./statistics.js";

/** Exact, by counting every way to draw k of n answers, the first c of which are right. */
function byCounting(n: number, c: number, k: number): number {
  let drawn = 0;
  let passed = 0;
  for (let set = 0; set < 2 ** n; set += 1) {
    const members = [...new Array(n).keys()].filter((index) => (set >> index) & 1);
    if (members.length !== k) continue;
    drawn += 1;
    if (members.some((index) => index < c)) passed += 1;
  }
  return passed / drawn;
}

describe("pass@k", () => {
  it("is what counting gives, for all small numbers", () => {
    for (let n = 1; n <= 8; n += 1) {
      for (let c = 0; c <= n; c += 1) {
        for (let k = 1; k <= n; k += 1) {
          expect(passAtK(n, c, k), `n ${n}, c ${c}, k ${k}`).toBeCloseTo(byCounting(n, c, k), 12);
        }
      }
    }
  });

  it("stays exact where binomials overflow", () => {
    // 1 - C(1990, 1000) / C(2000, 1000), with whole numbers of 600 digits.
    expect(passAtK(2000, 10, 1000)).toBeCloseTo(0.9990452674173292, 14);
    expect(passAtK(100_000, 1, 100)).toBeCloseTo(0.001, 12);
    expect(passAtK(200, 0, 100)).toBe(0);
    expect(passAtK(10, 1, 10)).toBe(1);
  });

  it("refuses more draws than answers", () => {
    expect(() => passAtK(4, 1, 5)).toThrow("k must be a positive integer to 4");
    expect(() => passAtK(4, 5, 1)).toThrow("correct must be a non-negative integer to 4");
  });

  it("is given for the usual k", () => {
    expect(usualKs(1)).toEqual([1]);
    expect(usualKs(4)).toEqual([1, 4]);
    expect(usualKs(10)).toEqual([1, 5, 10]);
    expect(usualKs(64)).toEqual([1, 5, 10, 25, 50, 64]);
  });
});

describe("the standard error", () => {
  it("of a share is that of the textbook", () => {
    const values = [1, 1, 1, 0];
    expect(meanOf(values)).toBe(0.75);
    // s² = (3 · 0.0625 + 0.5625) / 3 = 0.25, s / √4 = 0.25.
    expect(standardError(values)).toBeCloseTo(0.25, 12);
    expect(standardError([1])).toBeUndefined();
    expect(meanOf([])).toBe(0);
  });
});
