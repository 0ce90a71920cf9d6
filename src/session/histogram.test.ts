import { describe, expect, it } from "vitest";
import { Histogram, RELATIVE_ERROR } from "./histogram.js";

/** The nearest-rank quantile over all values, the definition the histogram approximates. */
function exactQuantile(values: readonly number[], quantile: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.ceil(quantile * sorted.length) - 1]!;
}

function pseudoRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

describe("Histogram", () => {
  const random = pseudoRandom(7);
  const shapes: Record<string, number[]> = {
    uniform: Array.from({ length: 5000 }, () => random() * 1000),
    "heavy tail": Array.from({ length: 5000 }, () => 1 / (1e-6 + random()) ** 2),
    "two peaks": Array.from({ length: 1000 }, (_, index) => (index < 940 ? 5 : 60_000)),
    "a single value": [42.5],
    "zeros and ones": Array.from({ length: 100 }, (_, index) => (index < 96 ? 0 : 1)),
  };
  for (const [name, values] of Object.entries(shapes)) {
    it(`estimates p50, p95 and p99 of ${name} within the relative error`, () => {
      const histogram = new Histogram();
      for (const value of values) histogram.observe(value);
      const summary = histogram.summary();
      for (const [key, quantile] of [
        ["p50", 0.5],
        ["p95", 0.95],
        ["p99", 0.99],
      ] as const) {
        const exact = exactQuantile(values, quantile);
        expect(Math.abs(summary[key] - exact)).toBeLessThanOrEqual(exact * RELATIVE_ERROR * 1.0001);
      }
      expect(summary.count).toBe(values.length);
      expect(summary.sum).toBeCloseTo(
        values.reduce((total, value) => total + value, 0),
        3,
      );
      expect(summary.min).toBe(Math.min(...values));
      expect(summary.max).toBe(Math.max(...values));
    });
  }

  it("takes memory by the range of the values, not by their number", () => {
    const histogram = new Histogram();
    for (let index = 0; index < 200_000; index += 1) histogram.observe(10 ** (random() * 30 - 10));
    expect(histogram.bucketCount).toBeLessThan(2500);
    const before = histogram.bucketCount;
    for (let index = 0; index < 10_000; index += 1) histogram.observe(1e300);
    expect(histogram.bucketCount - before).toBeLessThanOrEqual(1);
  });

  it("ignores values that are not durations or sizes, and is all zeros when empty", () => {
    const histogram = new Histogram();
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, -1]) histogram.observe(value);
    expect(histogram.summary()).toEqual({ count: 0, sum: 0, min: 0, max: 0, p50: 0, p95: 0, p99: 0 });
  });
});
