import { ValidationError } from "../../errors.js";
import { uniform } from "../../local/engine/philox.js";
import { checkWeights } from "../data/interleave.js";
import { checkWhole } from "../data/rows.js";
import type { EnvironmentGroup, GroupSource } from "./environment.js";

/** One of several sources of groups that are mixed. */
export interface MixedGroups {
  readonly source: GroupSource;
  /** How often its groups come, against the weights of the others: all have one, or none has. */
  readonly weight?: number | undefined;
  /** Added to the tags of its groups, so that its metrics are counted apart. */
  readonly tags?: readonly string[] | undefined;
}

/** Keeps these draws apart from all others with the same seed. */
const STREAM = 0x4d697865;

/**
 * Several sources as one. Without weights each group comes once in an epoch. With weights the sources come in these
 * shares, and an epoch is over when one of them would begin anew. Every stretch has the shares, but for one group; which
 * comes when is decided by the seed. Where a source ends, so does the whole.
 */
export function interleaveGroups(
  sources: readonly MixedGroups[],
  { seed = 0 }: { readonly seed?: number | undefined } = {},
): GroupSource {
  if (sources.length === 0) throw new ValidationError("sources", "sources must have at least one");
  checkWhole("seed", seed, 0);
  const given = checkWeights(sources.map(({ weight }) => weight));
  const weights = given ?? sources.map(({ source }, part) => lengthOf(source, part));
  const placeOf = schedule(weights, seed);
  return {
    length: given === undefined ? sumOf(weights) : lengthByWeight(sources, given),
    group: async (index) => {
      checkWhole("index", index, 0);
      const { part, number } = placeOf(index);
      const { source, tags = [] } = sources[part]!;
      const group = await source.group(number);
      return group === undefined || tags.length === 0 ? group : withTags(group, tags);
    },
    close: async () => {
      const closed = await Promise.allSettled(sources.map(async ({ source }) => source.close?.()));
      for (const each of closed) if (each.status === "rejected") throw each.reason;
    },
  };
}

function lengthOf({ length }: GroupSource, part: number): number {
  if (length !== undefined) return length;
  const field = `sources[${part}].weight`;
  throw new ValidationError(
    field,
    `${field} is missing: the number of groups in sources[${part}] is not known`,
  );
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, number) => sum + number, 0);

/** Groups until one of the sources has been used up. */
function lengthByWeight(sources: readonly MixedGroups[], weights: readonly number[]): number | undefined {
  const rounds = sources.flatMap(({ source: { length } }, part) =>
    length === undefined ? [] : [length / weights[part]!],
  );
  return rounds.length === 0 ? undefined : Math.max(1, Math.floor(Math.min(...rounds) * sumOf(weights)));
}

/**
 * Which group of which source stands at each place. The groups of a source are due at even distances, each somewhere
 * within its own: so the shares are kept everywhere, and by size the first epoch has each group once.
 */
function schedule(
  weights: readonly number[],
  seed: number,
): (index: number) => { readonly part: number; readonly number: number } {
  const places: { readonly part: number; readonly number: number }[] = [];
  const dueAt = (part: number, number: number) =>
    (number + uniform(seed, [number, part, 0, STREAM])) / weights[part]!;
  const next = weights.map((_, part) => ({ number: 0, due: dueAt(part, 0) }));
  return (index) => {
    while (places.length <= index) {
      const earliest = Math.min(...next.map(({ due }) => due));
      const part = next.findIndex(({ due }) => due === earliest);
      const { number } = next[part]!;
      places.push({ part, number });
      next[part] = { number: number + 1, due: dueAt(part, number + 1) };
    }
    return places[index]!;
  };
}

function withTags(group: EnvironmentGroup, tags: readonly string[]): EnvironmentGroup {
  return {
    makeEnvironments: () => group.makeEnvironments(),
    ...(group.groupRewards && { groupRewards: group.groupRewards.bind(group) }),
    close: () => group.close?.(),
    tags: [...(group.tags ?? []), ...tags],
  };
}
