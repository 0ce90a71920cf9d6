import { wrongField } from "../../wire/index.js";

const USUAL_KS = [1, 5, 10, 25, 50, 100];

/**
 * The probability that at least one of `k` answers drawn from `n` is right, if `correct` of them are: 1 - C(n-c, k) /
 * C(n, k), without bias and without large intermediate numbers.
 */
export function passAtK(n: number, correct: number, k: number): number {
  if (!(Number.isInteger(k) && k >= 1 && k <= n)) {
    throw wrongField("k", `must be a positive integer to ${n}, the number of answers, got ${k}`);
  }
  if (!(Number.isInteger(correct) && correct >= 0 && correct <= n)) {
    throw wrongField("correct", `must be a non-negative integer to ${n}, got ${correct}`);
  }
  if (n - correct < k) return 1;
  let allWrong = 1;
  for (let count = n - correct + 1; count <= n; count += 1) allWrong *= 1 - k / count;
  return 1 - allWrong;
}

/** The usual values of `k` for pass@k for a number of answers: 1, 5, 10 and so on, and all. */
export function usualKs(numSamples: number): readonly number[] {
  return [...new Set([...USUAL_KS.filter((k) => k < numSamples), numSamples])];
}

/** The mean of numbers; 0 if there are none. */
export function meanOf(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Standard error of a mean over tasks; undefined for fewer than two. */
export function standardError(values: readonly number[]): number | undefined {
  if (values.length < 2) return undefined;
  const center = meanOf(values);
  const squares = values.reduce((sum, value) => sum + (value - center) ** 2, 0);
  return Math.sqrt(squares / (values.length - 1) / values.length);
}

/** The mean of each metric over the examples that have it. */
export function meanMetrics(list: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const values = new Map<string, number[]>();
  for (const metrics of list) {
    for (const [name, value] of Object.entries(metrics)) {
      const known = values.get(name);
      if (known === undefined) values.set(name, [value]);
      else known.push(value);
    }
  }
  return Object.fromEntries([...values].map(([name, each]) => [name, meanOf(each)]));
}
