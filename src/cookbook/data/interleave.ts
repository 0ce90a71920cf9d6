import * as f from "../../wire/fields/index.js";
import { permutation } from "./permutation.js";
import { joinRows, type OpenRows, openAll, type Source } from "./rows.js";

/** One of several mixed sources. */
export interface MixedSource<T> {
  readonly source: Source<T>;
  /** Share of its rows, relative to the weights of the other sources; either all sources have a weight or none has. */
  readonly weight?: number | undefined;
}

const SOURCES = f.list(
  f.message({
    source: f.having<Source<unknown>>("rows, as conversations(...) reads them", "open"),
    weight: f.optional(f.positive),
  } satisfies f.FieldsOf<MixedSource<unknown>>),
  { least: 1 },
);

/**
 * Mixes several sources. Without weights, each row comes once per epoch. With weights, sources come in these shares: an
 * epoch has every row at least once, and rows of small sources as often as their share requires.
 */
export function interleave<T>(sources: readonly MixedSource<T>[]): Source<T> {
  const given = SOURCES.check(sources, "sources");
  const weights = checkWeights(given.map(({ weight }) => weight));
  return {
    open: async () => interleaveRows(await openAll(given.map(({ source }) => source as Source<T>)), weights),
  };
}

/** Returns the weights of mixed sources, which all of them have or none. */
export function checkWeights(weights: readonly (number | undefined)[]): readonly number[] | undefined {
  const given = weights.filter((weight) => weight !== undefined);
  if (given.length === 0) return undefined;
  if (given.length < weights.length) {
    const index = weights.indexOf(undefined);
    throw f.wrongField(`sources[${index}].weight`, `is missing: all sources have a weight, or none has`);
  }
  return given;
}

/** Rows of several sources as one, mixed by weights that were checked, or without any. */
export function interleaveRows<T>(
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

/**
 * Rows of each source in one epoch: the source that needs most for its share comes once, the others as often as
 * required.
 */
function countsByWeight(lengths: readonly number[], weights: readonly number[]): number[] {
  const perWeight = Math.max(...lengths.map((length, part) => length / weights[part]!));
  return lengths.map((length, part) =>
    length === 0 ? 0 : Math.max(length, Math.round(perWeight * weights[part]!)),
  );
}

/**
 * Repeats the rows of a source, each pass in another order, so that a partial last pass does not favour the first rows.
 */
function repeated(length: number, count: number, seed: number): Uint32Array {
  const rows = new Uint32Array(count);
  for (let start = 0, pass = 0; start < count; start += length, pass += 1) {
    const order =
      pass === 0 ? Uint32Array.from({ length }, (_, index) => index) : permutation(length, seed, pass);
    rows.set(order.subarray(0, count - start), start);
  }
  return rows;
}

/** Decides which source each position takes, so that each is spread evenly over the epoch. */
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
