import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { uniform } from "../../local/engine/philox.js";
import type { TrajectoryGroup } from "../environments/index.js";
import { GroupFeed, type RolloutGroup } from "./group-feed.js";
import type { RolloutDatum } from "./rollout-datum.js";
import { StepBatch, type StepRequest } from "./step-batch.js";

const GROUP: TrajectoryGroup = { trajectories: [], groupRewards: [], metrics: [], failures: [], tags: [] };

/** Trains a run by chance: sizes that do not divide, groups that take their time, teach nothing, or end. */
async function simulate(seed: number) {
  let drawn = 0;
  const random = () => {
    drawn += 1;
    return uniform(seed, [drawn, 0, 0, 7]);
  };
  const upTo = (most: number) => Math.floor(random() * (most + 1));
  const sizes = {
    groupsPerBatch: 1 + upTo(6),
    maxStepsOffPolicy: upTo(3),
    steps: 1 + upTo(7),
    substeps: 1 + upTo(2),
    minibatches: 1 + upTo(3),
  };
  const length = random() < 0.3 ? upTo(30) : Number.POSITIVE_INFINITY;
  const share = random();
  const teaches = (index: number) => uniform(seed, [index, 1, 0, 7]) < share;
  let rolling = 0;
  let mostRolling = 0;
  const feed = new GroupFeed<number>(
    {
      ...sizes,
      runGroup: async (index) => {
        rolling += 1;
        mostRolling = Math.max(mostRolling, rolling);
        for (let rest = upTo(8); rest > 0; rest -= 1) await turn();
        rolling -= 1;
        return index < length ? GROUP : undefined;
      },
    },
    { step: 0, first: 0 },
  );
  feed.refresh(0, 0);
  const taken: RolloutGroup[] = [];
  const trained: number[] = [];
  let first = 0;
  let step = 0;
  for (; step < sizes.steps; step += 1) {
    const prepare = async (groups: readonly RolloutGroup[]) =>
      groups.filter(({ index }) => teaches(index)).map(({ index }) => ({ group: index }) as RolloutDatum);
    const batch = new StepBatch(feed, { ...sizes, prepare }, { step, first });
    const requests: StepRequest[] = [];
    for await (const request of batch.requests()) requests.push(request);
    taken.push(...batch.groups);
    for (const { samplerStep } of batch.groups) {
      expect(step - samplerStep).toBeGreaterThanOrEqual(0);
      expect(step - samplerStep).toBeLessThanOrEqual(sizes.maxStepsOffPolicy);
    }
    if (requests.length === 0) break;
    // No update without gradients, and none are left over.
    const kinds = requests.map(({ type }) => (type === "pass" ? "p" : "u")).join("");
    expect(kinds).toMatch(/^(p+u)+$/);
    trained.push(
      ...requests.flatMap((each) => (each.type === "pass" ? each.data.map(({ group }) => group) : [])),
    );
    first = batch.nextGroup;
    const done = step + 1;
    // The weights come when they come.
    void turn().then(() => feed.refresh(done, done));
  }
  return { sizes, length, teaches, taken, trained, mostRolling, step };
}

describe("a run by chance", () => {
  it("takes every group once and in order, trains on all that teach, stays within its bounds, and ends", async () => {
    const endings = new Set<string>();
    for (let seed = 1; seed <= 300; seed += 1) {
      const { sizes, length, teaches, taken, trained, mostRolling, step } = await simulate(seed);
      expect(taken.map(({ index }) => index)).toEqual([...taken.keys()]);
      expect(trained).toEqual([...taken.keys()].filter(teaches));
      expect(mostRolling).toBeLessThanOrEqual(sizes.groupsPerBatch);
      const isWhole = step === sizes.steps;
      endings.add(isWhole ? "all steps" : taken.length >= length ? "no groups" : "nothing to learn");
    }
    expect([...endings].sort()).toEqual(["all steps", "no groups", "nothing to learn"]);
  });
});

it("says that episodes ran out of time, where they did, and not that they were rewarded alike", async () => {
  const turn = { reward: 0 } as TrajectoryGroup["trajectories"][number]["turns"][number];
  const late = {
    turns: [turn],
    end: "rollout_timeout",
  } as unknown as TrajectoryGroup["trajectories"][number];
  const group = { ...GROUP, trajectories: [late, late], groupRewards: [0, 0], metrics: [{}, {}] };
  const feed = {
    beginBatch: () => {},
    take: async (index: number) => ({ index, group, samplerStep: 0, seconds: 1 }),
  };
  const sizes = { groupsPerBatch: 2, substeps: 1, minibatches: 1, prepare: async () => [] };
  const batch = new StepBatch(feed, sizes, { step: 0, first: 0 });
  for await (const _ of batch.requests()) expect.unreachable();
  expect(batch.reason).toMatch(
    /^of the last 20 groups in 20 all episodes ran out of time \(limits\.timeoutMs\)/,
  );
  expect(batch.reason).toContain("A higher limits.timeoutMs");
});
