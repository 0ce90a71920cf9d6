import type { Draw } from "./kernels.js";

/** How a token is drawn. */
export type Choice = Pick<Draw, "temperature" | "topK" | "topP">;

/** Below this a temperature means "the likeliest token". */
export const MAX_GREEDY_TEMPERATURE = 1e-5;

/** Lighter than this a token is never drawn: the random number has no step so fine. */
const MIN_EXPONENT = -45;
const POWERS_OF_HALF = Float64Array.from({ length: 66 }, (_, power) => 2 ** -power);

/**
 * e^x for -45 <= x <= 0 to eleven digits: several times as fast as Math.exp, over a whole vocabulary for every token, and the
 * same on every machine.
 */
export function exponential(x: number): number {
  const halvings = (0.5 - x * Math.LOG2E) | 0;
  const r = x + halvings * Math.LN2;
  const r2 = r * r;
  // In pairs rather than by Horner's rule: the shorter chain of dependences is what counts.
  const low = 1 + r + r2 * (1 / 2 + r * (1 / 6));
  const middle = 1 / 24 + r * (1 / 120) + r2 * (1 / 720 + r * (1 / 5040));
  const series = low + r2 * r2 * (middle + r2 * r2 * (1 / 40320 + r * (1 / 362880)));
  return series * POWERS_OF_HALF[halvings]!;
}

/** Serves one draw after another: a fresh array for each would cost as much as filling it. */
let reusedWeights = new Float64Array(0);

/** Draws a token; `random` is uniform in [0, 1). */
export function chooseToken(logits: Float32Array, choice: Choice, random: number): number {
  const best = indexOfMaximum(logits);
  const { temperature } = choice;
  if (temperature < MAX_GREEDY_TEMPERATURE) return best;
  if (reusedWeights.length !== logits.length) reusedWeights = new Float64Array(logits.length);
  const weights = reusedWeights;
  const largest = logits[best]!;
  const sharpness = 1 / temperature;
  let total = 0;
  for (let i = 0; i < logits.length; i++) {
    const exponent = (logits[i]! - largest) * sharpness;
    const weight = exponent < MIN_EXPONENT ? 0 : exponential(exponent);
    weights[i] = weight;
    total += weight;
  }
  const limited = (choice.topK > 0 && choice.topK < logits.length) || choice.topP < 1;
  if (!limited) return draw(weights, undefined, total, random);
  const { order, mass } = nucleus(weights, total, choice);
  return draw(weights, order, mass, random);
}

function indexOfMaximum(logits: Float32Array): number {
  let best = 0;
  let largest = logits[0]!;
  for (let i = 1; i < logits.length; i++) {
    if (logits[i]! > largest) {
      largest = logits[i]!;
      best = i;
    }
  }
  return best;
}

/** Tokens that top-k, then top-p leave over, likeliest first, and their weight together. */
function nucleus(weights: Float64Array, total: number, choice: Choice): { order: number[]; mass: number } {
  let candidates: number[] = [];
  if (choice.topK > 0 && choice.topK < weights.length) {
    const least = weights.slice().sort()[weights.length - choice.topK]!;
    for (let i = 0; i < weights.length; i++) if (weights[i]! >= least) candidates.push(i);
  } else {
    // Tokens lighter than this weigh less than 1 - topP together, so none of them is in the nucleus.
    const least = ((1 - choice.topP) * total) / weights.length;
    for (let i = 0; i < weights.length; i++) if (weights[i]! >= least) candidates.push(i);
  }
  candidates.sort((a, b) => weights[b]! - weights[a]! || a - b);
  let candidateMass = total;
  if (choice.topK > 0 && choice.topK < weights.length) {
    candidates = candidates.slice(0, choice.topK);
    candidateMass = candidates.reduce((sum, token) => sum + weights[token]!, 0);
  }
  let mass = 0;
  let count = 0;
  while (count < candidates.length && (count === 0 || mass < choice.topP * candidateMass)) {
    mass += weights[candidates[count]!]!;
    count += 1;
  }
  return { order: candidates.slice(0, count), mass };
}

function draw(weights: Float64Array, order: number[] | undefined, total: number, random: number): number {
  const threshold = random * total;
  const count = order ? order.length : weights.length;
  let sum = 0;
  let last = 0;
  for (let i = 0; i < count; i++) {
    const token = order ? order[i]! : i;
    if (weights[token]! === 0) continue;
    sum += weights[token]!;
    last = token;
    if (sum > threshold) return token;
  }
  return last;
}

/** The `count` likeliest tokens, or all where there are no more; equal ones by number. */
export function topTokensOf(logits: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let token = 0; token < logits.length; token++) {
    if (best.length === count && logits[token]! <= logits[best[count - 1]!]!) continue;
    let at = best.length;
    while (at > 0 && logits[best[at - 1]!]! < logits[token]!) at--;
    best.splice(at, 0, token);
    if (best.length > count) best.pop();
  }
  return best;
}
