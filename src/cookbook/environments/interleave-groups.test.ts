import { describe, expect, it } from "vitest";
import type { EnvironmentGroup, GroupSource } from "./environment.js";
import { interleaveGroups, type MixedGroups } from "./interleave-groups.js";

/** Groups that are known by a tag: `a0`, `a1`... */
function source(name: string, length?: number, last = Number.POSITIVE_INFINITY): GroupSource {
  const group = (index: number): EnvironmentGroup | undefined =>
    index > last ? undefined : { makeEnvironments: () => [], tags: [`${name}${index}`] };
  return { length, group };
}

async function taken(sources: readonly MixedGroups[], count: number, seed?: number): Promise<string[]> {
  const { group } = interleaveGroups(sources, { seed });
  const indexes = Array.from({ length: count }, (_, index) => index);
  return (await Promise.all(indexes.map(group))).map((each) => each!.tags![0]!);
}

const share = (names: readonly string[], name: string) =>
  names.filter((each) => each.startsWith(name)).length;

describe("interleaved groups", () => {
  it("come once in an epoch without weights, spread over it, again and again", async () => {
    const sources = [{ source: source("a", 60) }, { source: source("b", 20) }];
    expect(interleaveGroups(sources).length).toBe(80);
    const names = await taken(sources, 160);
    expect(new Set(names.slice(0, 80)).size).toBe(80);
    expect(share(names.slice(0, 80), "b")).toBe(20);
    expect(share(names.slice(80), "b")).toBe(20);
    for (let start = 0; start < 160; start += 16) {
      expect(Math.abs(share(names.slice(start, start + 16), "b") - 4)).toBeLessThanOrEqual(2);
    }
    expect(names.filter((name) => name.startsWith("a"))).toEqual(
      Array.from({ length: 120 }, (_, index) => `a${index}`),
    );
  });

  it("come in the shares of the weights, until one source is used up", async () => {
    const sources = [
      { source: source("a", 1000), weight: 3 },
      { source: source("b", 10), weight: 1 },
      { source: source("c"), weight: 1 },
    ];
    expect(interleaveGroups(sources).length).toBe(50);
    const names = await taken(sources, 500);
    expect(Math.abs(share(names, "a") - 300)).toBeLessThanOrEqual(2);
    expect(Math.abs(share(names, "b") - 100)).toBeLessThanOrEqual(2);
    expect(interleaveGroups([{ source: source("c"), weight: 1 }]).length).toBeUndefined();
  });

  it("are decided by number and seed, whatever was asked before", async () => {
    const sources = [
      { source: source("a"), weight: 2 },
      { source: source("b"), weight: 1 },
    ];
    const names = await taken(sources, 60);
    const again = interleaveGroups(sources);
    expect((await again.group(50))!.tags).toEqual([names[50]]);
    expect((await again.group(7))!.tags).toEqual([names[7]]);
    expect(await taken(sources, 60, 1)).not.toEqual(names);
  });

  it("have the tags of their source besides their own, and stay themselves otherwise", async () => {
    class Counted implements EnvironmentGroup {
      made = 0;
      readonly tags = ["own"];
      makeEnvironments() {
        this.made += 1;
        return [];
      }
      groupRewards() {
        return [{ reward: this.made }];
      }
    }
    const group = new Counted();
    const mixed = interleaveGroups([{ source: { group: () => group }, weight: 1, tags: ["math"] }]);
    const found = (await mixed.group(0))!;
    expect(found.tags).toEqual(["own", "math"]);
    await found.makeEnvironments();
    const context = { environments: [], signal: new AbortController().signal };
    expect(await found.groupRewards!([], context)).toEqual([{ reward: 1 }]);
    const untagged = interleaveGroups([{ source: { group: () => group }, weight: 1 }]);
    expect(await untagged.group(0)).toBe(group);
  });

  it("end where a source ends, and close all sources", async () => {
    const closed: string[] = [];
    const closing = (name: string, error?: Error): MixedGroups => ({
      source: {
        ...source(name, undefined, 1),
        close: async () => {
          closed.push(name);
          if (error !== undefined) throw error;
        },
      },
      weight: 1,
      tags: ["t"],
    });
    const mixed = interleaveGroups([closing("a", new Error("stuck")), closing("b")]);
    expect(await mixed.group(20)).toBeUndefined();
    await expect(mixed.close!()).rejects.toThrow("stuck");
    expect(closed).toEqual(["a", "b"]);
  });

  it.each([
    [[], "sources must be a list of at least 1 entry, got 0"],
    [[{ source: source("a", 1), wieght: 1 }], "unknown field sources[0].wieght; did you mean weight?"],
    [[{ source: [] as never }], "sources[0].source must be a source of groups, got"],
    [
      [{ source: source("a") }],
      "sources[0].weight is missing: the number of groups in sources[0] is not known",
    ],
    [
      [{ source: source("a", 1), weight: 1 }, { source: source("b", 1) }],
      "sources[1].weight is missing: all sources have a weight, or none has",
    ],
    [[{ source: source("a", 1), weight: -1 }], "sources[0].weight must be a number above 0, got -1"],
  ])("refuse %o", (sources, message) => {
    expect(() => interleaveGroups(sources)).toThrow(message);
  });
});
