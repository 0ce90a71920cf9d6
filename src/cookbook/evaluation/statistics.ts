import { ValidationError } from "../../errors.js";

const USUAL_KS = [1, 5, 10, 25, 50, 100];

/**
 * The chance that at least one of `k` answers is right, drawn from `n` of which `correct` are: 1 - C(n-c, k) / C(n, k),
 * without a bias and without large numbers in between.
 */
export function passAtK(n: number, correct: number, k: number): number {
  if (!(Number.isInteger(k) && k >= 1 && k <= n)) {
    throw new ValidationError(
      "k",
      `k must be a whole number from 1 to ${n}, the number of answers, got ${k}`,
    );
  }
  if (!(Number.isInteger(correct) && correct >= 0 && correct <= n)) {
    throw new ValidationError("correct", `correct must be a whole number from 0 to ${n}, got ${correct}`);
  }
  if (n - correct < k) return 1;
  let allWrong = 1;
  for (let count = n - correct + 1; count <= n; count += 1) allWrong *= 1 - k / count;
  return 1 - allWrong;
}

/** The `k` that are usually told for so many answers: 1, 5, 10 and so on, and all. */
export function usualKs(numSamples: number): readonly number[] {
  return [...new Set([...USUAL_KS.filter((k) => k < numSamples), numSamples])];
}

export function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** How far the mean would move with other tasks of the kind; undefined for fewer than two. */
export function standardError(values: readonly number[]): number | undefined {
  if (values.length < 2) return undefined;
  const center = mean(values);
  const squares = values.reduce((sum, value) => sum + (value - center) ** 2, 0);
  return Math.sqrt(squares / (values.length - 1) / values.length);
}
