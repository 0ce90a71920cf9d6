import type { ForwardBackwardOutput } from "../wire/index.js";

/** One output from the outputs of the chunks a batch was sent in. */
export function combineForwardBackwardOutputs(
  outputs: readonly ForwardBackwardOutput[],
): ForwardBackwardOutput {
  const first = outputs[0];
  if (first === undefined) return { lossFnOutputType: "", lossFnOutputs: [], metrics: {} };
  if (outputs.length === 1) return first;
  return {
    lossFnOutputType: first.lossFnOutputType,
    lossFnOutputs: outputs.flatMap((output) => output.lossFnOutputs),
    metrics: reduceMetrics(
      outputs.map((output) => output.metrics),
      outputs.map((output) => output.lossFnOutputs.length),
    ),
  };
}

/**
 * Folds metrics by the suffix of their name: `loss:sum` adds, `mfu:mean` averages by datums. A name without a
 * suffix keeps its first value; one with an unknown suffix, or missing in some chunk, is dropped.
 */
export function reduceMetrics(
  chunks: readonly Readonly<Record<string, number>>[],
  datumCounts: readonly number[],
): Record<string, number> {
  const reduced: Record<string, number> = {};
  for (const [key, value] of Object.entries(chunks[0] ?? {})) {
    const suffixAt = key.lastIndexOf(":");
    if (suffixAt < 0) {
      reduced[key] = value;
      continue;
    }
    if (!chunks.every((metrics) => key in metrics)) continue;
    const values = chunks.map((metrics) => metrics[key]!);
    switch (key.slice(suffixAt + 1)) {
      case "sum":
        reduced[key] = values.reduce((total, each) => total + each, 0);
        break;
      case "min":
        reduced[key] = extreme(values, (each, best) => each < best);
        break;
      case "max":
        reduced[key] = extreme(values, (each, best) => each > best);
        break;
      case "mean":
        reduced[key] = weightedMean(values, datumCounts);
        break;
      case "slack":
        reduced[key] = extreme(values, (each, best) => each > best) - weightedMean(values, datumCounts);
        break;
      case "unique":
        values.forEach((each, index) => {
          reduced[index === 0 ? key : `${key}_${index}`] = each;
        });
        break;
      case "hash_unordered":
        reduced[key] = hashUnordered(values);
        break;
      case "hash2":
        reduced[key] = Number(
          values.reduce((total, each) => BigInt.asUintN(64, total + wholeNumber(each)), 0n),
        );
        break;
    }
  }
  return reduced;
}

/** NaN in any chunk stays visible, as numpy's min and max keep it. */
function extreme(values: readonly number[], better: (each: number, best: number) => boolean): number {
  return values.reduce((best, each) =>
    Number.isNaN(best) || (!Number.isNaN(each) && !better(each, best)) ? best : each,
  );
}

function weightedMean(values: readonly number[], weights: readonly number[]): number {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  if (total === 0) return values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.reduce((sum, value, index) => sum + value * weights[index]!, 0) / total;
}

const wholeNumber = (value: number): bigint => BigInt(Number.isFinite(value) ? Math.trunc(value) : 0);

const PRIME_1 = 11400714785074694791n;
const PRIME_2 = 14029467366897019727n;
const PRIME_5 = 2870177450012600261n;
const MERSENNE_61 = (1n << 61n) - 1n;

/** CPython's hash of the sorted tuple of integers, so that the number equals the Python SDK's. */
export function hashUnordered(values: readonly number[]): number {
  const items = values.map(wholeNumber).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  let accumulator = PRIME_5;
  for (const item of items) {
    const magnitude = (item < 0n ? -item : item) % MERSENNE_61;
    const signed = item < 0n ? -magnitude : magnitude;
    const hash = signed === -1n ? -2n : signed;
    accumulator = BigInt.asUintN(64, accumulator + hash * PRIME_2);
    accumulator = BigInt.asUintN(64, (accumulator << 31n) | (accumulator >> 33n));
    accumulator = BigInt.asUintN(64, accumulator * PRIME_1);
  }
  accumulator = BigInt.asUintN(64, accumulator + (BigInt(items.length) ^ (PRIME_5 ^ 3527539n)));
  const signed = BigInt.asIntN(64, accumulator);
  return Number(signed === -1n ? 1546275796n : signed);
}
