import { ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import { permutation } from "./permutation.js";
import { joinRows, type OpenRows, openAll, type Source } from "./rows.js";

/** One of several sources that are mixed. */
export interface MixedSource<T> {
  readonly source: Source<T>;
  /** How often its rows come, against the weights of the others: all have one, or none has. */
  readonly weight?: number | undefined;
}

/**
 * Several sources as one. Without weights each row comes once in an epoch. With weights the sources come in these
 * shares: one epoch has every row at least once, and those of the small sources again as often as their share wants.
 */
export function interleave<T>(sources: readonly MixedSource<T>[]): Source<T> {
  const weights = checkWeights(sources.map(({ weight }) => weight));
  return { open: async () => interleaveRows(await openAll(sources.map(({ source }) => source)), weights) };
}

export function checkWeights(weights: readonly (number | undefined)[]): readonly number[] | undefined {
  const given = weights.filter((weight) => weight !== undefined);
  if (given.length === 0) return undefined;
  if (given.length < weights.length) {
    const index = weights.indexOf(undefined);
    throw new ValidationError(
      `sources[${index}].weight`,
      `sources[${index}].weight is missing: all sources have a weight, or none has`,
    );
  }
  for (const [index, weight] of given.entries()) {
    if (!(weight > 0 && weight < Number.POSITIVE_INFINITY)) {
      throw wrongValue(`sources[${index}].weight`, "a number above 0", weight);
    }
  }
  return given;
}

function interleaveRows<T>(
  parts: readonly OpenRows<T>[],
  weights: readonly number[] | undefined,
): OpenRows<T> {
  const lengths = parts.map(({ length }) => length);
  const counts = weights === undefined ? lengths : countsByWeight(lengths, weights);
  const rowsOf = lengths.map((length, part) => repeated(length, counts[part]!, part));
  const partAt = spread(counts);
  const taken = lengths.map(() => 0);
  return joinRows(
    parts,
    partAt,
    partAt.map((part) => rowsOf[part]![taken[part]!++]!),
  );
}

/** Rows of each source in one epoch: the source that needs most for its share comes once, and the others as they must. */
function countsByWeight(lengths: readonly number[], weights: readonly number[]): number[] {
  const perWeight = Math.max(...lengths.map((length, part) => length / weights[part]!));
  return lengths.map((length, part) =>
    length === 0 ? 0 : Math.max(length, Math.round(perWeight * weights[part]!)),
  );
}

/** The rows of a source over and over, each time in another order, so that the last pass does not favour the first rows. */
function repeated(length: number, count: number, seed: number): Uint32Array {
  const rows = new Uint32Array(count);
  for (let start = 0, pass = 0; start < count; start += length, pass += 1) {
    const order =
      pass === 0 ? Uint32Array.from({ length }, (_, index) => index) : permutation(length, seed, pass);
    rows.set(order.subarray(0, count - start), start);
  }
  return rows;
}

/** Which source stands where, so that each is spread evenly over the whole. */
function spread(counts: readonly number[]): Uint32Array {
  const order = new Uint32Array(counts.reduce((sum, count) => sum + count, 0));
  const taken = counts.map(() => 0);
  for (const position of order.keys()) {
    let next = -1;
    let earliest = Number.POSITIVE_INFINITY;
    for (const [part, count] of counts.entries()) {
      const due = (taken[part]! + 0.5) / count;
      if (taken[part]! < count && due < earliest) [next, earliest] = [part, due];
    }
    order[position] = next;
    taken[next]! += 1;
  }
  return order;
}
