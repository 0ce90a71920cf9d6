import type { SampleSummary } from "../../api.js";

/** The order of a list of samples. */
export const SORTS = {
  groups: "groups, best first",
  best: "highest reward",
  worst: "lowest reward",
  longest: "longest",
  shortest: "shortest",
  recorded: "as recorded",
} as const;

/** How samples are listed; it is part of the address and stays from step to step. */
export interface ListLook {
  readonly search: string;
  readonly sort: keyof typeof SORTS;
  /** Reason that an answer ended; "" for any. */
  readonly stop: string;
  readonly minReward: number | undefined;
  readonly maxReward: number | undefined;
}

/** The look that an address names. */
export function readListLook(query: URLSearchParams): ListLook {
  const sort = query.get("sort") ?? "";
  const number = (name: string) => {
    const text = query.get(name);
    return text === null || text === "" || !Number.isFinite(Number(text)) ? undefined : Number(text);
  };
  return {
    search: query.get("search") ?? "",
    sort: Object.hasOwn(SORTS, sort) ? (sort as ListLook["sort"]) : "groups",
    stop: query.get("stop") ?? "",
    minReward: number("from"),
    maxReward: number("to"),
  };
}

/** The look as parts of an address. */
export function writeListLook({ search, sort, stop, minReward, maxReward }: ListLook) {
  return {
    search: search || undefined,
    sort: sort === "groups" ? undefined : sort,
    stop: stop || undefined,
    from: minReward?.toString(),
    to: maxReward?.toString(),
  };
}

/** Samples that are listed together. */
export interface SampleGroup {
  readonly title: string;
  readonly members: readonly SampleSummary[];
  readonly tags: readonly string[];
  readonly mean: number | undefined;
}

/** The samples that a look lets through, in its order. */
export function listed(
  samples: readonly SampleSummary[],
  { sort, stop, minReward, maxReward }: ListLook,
): readonly SampleGroup[] {
  const shown = samples.filter(
    ({ reward, stopReason }) =>
      (stop === "" || (stopReason ?? NO_REASON) === stop) &&
      (minReward === undefined || (reward ?? Number.NEGATIVE_INFINITY) >= minReward) &&
      (maxReward === undefined || (reward ?? Number.POSITIVE_INFINITY) <= maxReward),
  );
  if (sort === "groups") return inGroups(shown);
  const value = (sample: SampleSummary) =>
    ({
      best: -(sample.reward ?? Number.NEGATIVE_INFINITY),
      worst: sample.reward ?? Number.POSITIVE_INFINITY,
      longest: -sample.tokenCount,
      shortest: sample.tokenCount,
      recorded: sample.place,
    })[sort];
  const members = shown.toSorted((one, other) => compare(value(one), value(other)));
  return members.length === 0 ? [] : [{ title: "", members, tags: [], mean: undefined }];
}

/** Stands for answers whose log says no reason. */
export const NO_REASON = "none";

/** The best group first, and in it the best sample; without rewards as they stand. */
function inGroups(samples: readonly SampleSummary[]): readonly SampleGroup[] {
  const groups = new Map<number, SampleSummary[]>();
  for (const sample of samples) groups.set(sample.group, [...(groups.get(sample.group) ?? []), sample]);
  return [...groups]
    .map(([group, members]) => {
      const rewards = members.flatMap(({ reward }) => (typeof reward === "number" ? reward : []));
      return {
        title: groups.size === 1 && rewards.length === 0 ? "" : `group ${group}`,
        members: members.toSorted((one, other) => (other.reward ?? 0) - (one.reward ?? 0)),
        tags: members[0]?.tags ?? [],
        mean:
          rewards.length === 0
            ? undefined
            : rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length,
      };
    })
    .sort((one, other) => (other.mean ?? 0) - (one.mean ?? 0));
}

/** Infinite values are equal to each other. */
function compare(one: number, other: number): number {
  return one === other ? 0 : one - other;
}
