import { describe, expect, it } from "vitest";
import type { TrajectoryGroup } from "../environments/index.js";
import { GroupFeed, type GroupFeedOptions } from "./group-feed.js";

const GROUP: TrajectoryGroup = { trajectories: [], groupRewards: [], metrics: [], failures: [], tags: [] };

/** A feed whose groups end on request; samplers are their own numbers. */
function scripted(options: Partial<GroupFeedOptions<string>> = {}, batch = { step: 0, first: 0 }) {
  type Rolling = { sampler: string; weights: () => { sampler: string; step: number } };
  const rolling = new Map<number, Rolling & { end: () => void; fail: (error: Error) => void }>();
  const began: number[] = [];
  const feed = new GroupFeed<string>(
    {
      groupsPerBatch: 2,
      maxStepsOffPolicy: 0,
      steps: 4,
      runGroup: (index, weights) =>
        new Promise((resolve, reject) => {
          began.push(index);
          rolling.set(index, {
            sampler: weights().sampler,
            weights,
            end: () => resolve(GROUP),
            fail: reject,
          });
        }),
      ...options,
    },
    batch,
  );
  const end = async (...indices: number[]) => {
    for (const index of indices) rolling.get(index)!.end();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { feed, rolling, began, end };
}

describe("GroupFeed", () => {
  it("on policy, rolls out a batch once its weights are there, and nothing ahead", async () => {
    const { feed, rolling, began, end } = scripted();
    expect(began).toEqual([]);
    feed.refresh("weights 0", 0);
    expect(began).toEqual([0, 1]);
    await end(1, 0);
    expect(began).toEqual([0, 1]);
    expect(await feed.take(0)).toMatchObject({ index: 0, samplerStep: 0 });
    feed.beginBatch(1, 2);
    expect(began).toEqual([0, 1]);
    feed.refresh("weights 1", 1);
    expect(began).toEqual([0, 1, 2, 3]);
    expect(rolling.get(2)!.sampler).toBe("weights 1");
  });

  it("keeps the weights that a group began with, or moves it to newer ones where it is to follow them", async () => {
    for (const followsWeights of [false, true]) {
      const { feed, rolling, end } = scripted({ followsWeights, maxStepsOffPolicy: 1 });
      feed.refresh("weights 0", 0);
      feed.refresh("weights 1", 1);
      expect(rolling.get(0)!.weights().sampler).toBe(followsWeights ? "weights 1" : "weights 0");
      await end(0);
      expect(await feed.take(0)).toMatchObject({ samplerStep: 0 });
    }
  });

  it("never lets a group be older than the bound when it is trained on, and samples nothing in vain", async () => {
    const { feed, began, end } = scripted({ maxStepsOffPolicy: 2, steps: 5 });
    feed.refresh("weights 0", 0);
    const staleness: number[] = [];
    for (let step = 0; step < 5; step += 1) {
      feed.beginBatch(step, 2 * step);
      // As many as may, in any order.
      for (let turn = 0; turn < 5; turn += 1) await end(...began.slice().reverse());
      expect(began.length).toBeLessThanOrEqual(2 * (step + 3));
      for (const index of [2 * step, 2 * step + 1])
        staleness.push(step - (await feed.take(index))!.samplerStep);
      feed.refresh(`weights ${step + 1}`, step + 1);
    }
    expect(staleness).toEqual([0, 0, 1, 1, 2, 2, 2, 2, 2, 2]);
    expect(began).toEqual([...Array(10).keys()]);
  });

  it("goes on with further groups for the same step, and rolls out no more at a time than a batch has", async () => {
    const { feed, began, end } = scripted({ maxStepsOffPolicy: 1 });
    feed.refresh("weights 0", 0);
    expect(began).toEqual([0, 1]);
    await end(0, 1);
    expect(began).toEqual([0, 1, 2, 3]);
    await end(2, 3);
    expect(began).toEqual([0, 1, 2, 3]);
    feed.beginBatch(0, 2);
    expect(began).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it("says where the source ends, to every caller at any time", async () => {
    const { feed } = scripted({ runGroup: async (index) => (index < 1 ? GROUP : undefined) });
    const late = [feed.take(1), feed.take(7)];
    feed.refresh("weights 0", 0);
    expect(await Promise.all(late)).toEqual([undefined, undefined]);
    expect(await feed.take(0)).toMatchObject({ index: 0 });
    expect(await feed.take(9)).toBeUndefined();
  });

  it("fails for all who wait or ask later as soon as one group fails, and begins no other", async () => {
    const { feed, rolling, began, end } = scripted({ maxStepsOffPolicy: 3 });
    feed.refresh("weights 0", 0);
    const first = feed.take(0);
    rolling.get(1)!.fail(new Error("the dog ate it"));
    await expect(first).rejects.toThrow("the dog ate it");
    await expect(feed.take(5)).rejects.toThrow("the dog ate it");
    await end(0);
    feed.refresh("weights 1", 1);
    expect(began).toEqual([0, 1]);
  });
});
