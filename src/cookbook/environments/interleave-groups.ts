import { uniform } from "../../local/engine/philox.js";
import * as f from "../../wire/fields/index.js";
import { checkWeights } from "../data/interleave.js";
import type { EnvironmentGroup, GroupSource } from "./environment.js";

/** One of several mixed sources of groups. */
export interface MixedGroups {
  readonly source: GroupSource;
  /**
   * Share of its groups, relative to the weights of the other sources; either all sources have a weight or none has.
   */
  readonly weight?: number | undefined;
  /** Tag added to its groups, so that its metrics are counted separately. */
  readonly tags?: readonly string[] | undefined;
}

/** How sources of groups are mixed. */
export interface MixOptions {
  /** Seed that decides the order of the sources. Default: 0. */
  readonly seed?: number | undefined;
}

/** The option table of `interleaveGroups`. */
export const MIX_OPTIONS = f.optionTable({
  seed: f.option(f.withDefault(f.nonNegativeInteger, 0), "seed that decides the order of the sources"),
} satisfies f.OptionsOf<MixOptions>);

const SOURCES = f.list(
  f.message({
    source: f.having<GroupSource>("a source of groups", "group"),
    weight: f.optional(f.positive),
    tags: f.optional(f.list(f.text)),
  } satisfies f.FieldsOf<MixedGroups>),
  { least: 1 },
);

/** Makes these random numbers independent of others with the same seed. */
const STREAM = 0x4d697865;

/**
 * Mixes several sources. Without weights, each group comes once per epoch. With weights, the sources come in these
 * shares, to within one group in every stretch, and an epoch ends when one of them would repeat; the seed decides the
 * order. When a source ends, so does the mixture.
 */
export function interleaveGroups(mixed: readonly MixedGroups[], options: MixOptions = {}): GroupSource {
  const sources = SOURCES.check(mixed, "sources");
  const { seed } = MIX_OPTIONS.check(options, "interleaveGroups");
  const given = checkWeights(sources.map(({ weight }) => weight));
  const weights = given ?? sources.map(({ source }, part) => lengthOf(source, part));
  const placeOf = schedule(weights, seed);
  return {
    length: given === undefined ? sumOf(weights) : lengthByWeight(sources, given),
    group: async (index) => {
      f.nonNegativeInteger.check(index, "index");
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
  throw f.wrongField(field, `is missing: the number of groups in sources[${part}] is not known`);
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, number) => sum + number, 0);

/** Groups until one of the sources is used up. */
function lengthByWeight(sources: readonly MixedGroups[], weights: readonly number[]): number | undefined {
  const rounds = sources.flatMap(({ source: { length } }, part) =>
    length === undefined ? [] : [length / weights[part]!],
  );
  return rounds.length === 0 ? undefined : Math.max(1, Math.floor(Math.min(...rounds) * sumOf(weights)));
}

/**
 * Decides which group of which source each position takes. A source's groups are due at even intervals, each at a
 * random place within its interval: so the shares hold everywhere, and the first epoch has each group once.
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

/** Adds tags to a group. */
export function withTags(group: EnvironmentGroup, tags: readonly string[]): EnvironmentGroup {
  return {
    makeEnvironments: () => group.makeEnvironments(),
    ...(group.groupRewards && { groupRewards: group.groupRewards.bind(group) }),
    close: () => group.close?.(),
    tags: [...(group.tags ?? []), ...tags],
  };
}
