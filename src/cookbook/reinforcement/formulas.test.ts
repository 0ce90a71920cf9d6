import { describe, expect, it } from "vitest";
import { ModelInput, type ModelInputChunkLike } from "../../wire/index.js";
import type { Metrics, Trajectory, TrajectoryGroup, Turn } from "../environments/index.js";
import { type AdvantageRule, dropConstantGroups, groupAdvantages } from "./advantages.js";
import { assembleData, splitEvenly, trajectoryData } from "./assemble.js";
import { discountedSums, klPenalty, klSampleTrain, logprobsUnder, postKl } from "./kl.js";
import { policyLoss } from "./losses.js";
import { samplerMetrics, trajectoryMetrics } from "./metrics.js";
import type { RolloutDatum } from "./rollout-datum.js";

type Seen = readonly (number | ModelInputChunkLike)[];

function observe(seen: Seen): ModelInput {
  return ModelInput.from(
    seen.map((each) => (typeof each === "number" ? { type: "encoded_text", tokens: [each] } : each)),
  );
}

/** A turn whose tokens were sampled with logprobs of -1/8, -2/8 and so on. */
function turn(seen: Seen, tokens: readonly number[], more: Partial<Turn> = {}): Turn {
  return {
    observation: observe(seen),
    action: {
      tokens: Int32Array.from(tokens),
      logprobs: Float32Array.from(tokens, (_, at) => -(at + 1) / 8),
      stopReason: "stop",
    },
    reward: 0,
    isDone: false,
    isMasked: false,
    metrics: {},
    logs: {},
    ...more,
  };
}

const episode = (turns: readonly Turn[], more: Partial<Trajectory> = {}): Trajectory => ({
  turns,
  finalObservation: ModelInput.empty(),
  ...more,
});

function group(rewards: readonly number[], more: Partial<TrajectoryGroup> = {}): TrajectoryGroup {
  return {
    trajectories: rewards.map((reward) => episode([turn([1, 2], [3], { reward })])),
    groupRewards: rewards.map(() => 0),
    metrics: rewards.map(() => ({})),
    failures: [],
    tags: [],
    ...more,
  };
}

const plain = ({ input, targetTokens, logprobs, advantages, mask, ...place }: RolloutDatum) => ({
  input: input.chunks.map((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : chunk.type)),
  targets: [...targetTokens],
  logprobs: [...logprobs],
  advantages: [...advantages],
  mask: [...mask],
  ...place,
});

describe("advantages", () => {
  const of = (rewards: number[], rule?: AdvantageRule) => [...groupAdvantages(group(rewards), rule)];

  it("compare an episode with its group, in one of three ways", () => {
    expect(of([1, 0, 0, 1])).toEqual([0.5, -0.5, -0.5, 0.5]);
    expect(of([1, 0, 0, 1], "leave_one_out")).toEqual(
      [1, -1, -1, 1].map((sign) => Math.fround((sign * 2) / 3)),
    );
    const [best, , worst] = of([3, 2, 1], "mean_deviation");
    expect(best).toBeCloseTo(1, 5);
    expect(worst).toBeCloseTo(-1, 5);
  });

  it("are 0 where there is nothing to compare", () => {
    for (const rule of ["mean", "mean_deviation", "leave_one_out"] as const) {
      expect(of([7], rule)).toEqual([0]);
      expect(of([0.5, 0.5, 0.5], rule)).toEqual([0, 0, 0]);
      expect(of([], rule)).toEqual([]);
    }
  });

  it("add what the group decided to what the turns were worth", () => {
    const twoTurns = episode([turn([1], [2], { reward: 0.25 }), turn([1, 2], [3], { reward: 0.25 })]);
    const groups = group([0, 0], { trajectories: [twoTurns, twoTurns], groupRewards: [1, -1] });
    expect([...groupAdvantages(groups)]).toEqual([1, -1]);
  });

  it("refuse rewards that are not numbers, and unknown rules", () => {
    expect(() => of([1, Number.NaN])).toThrow(
      "the reward of trajectories[1] must be a finite number, got NaN",
    );
    expect(() => of([1], "median" as AdvantageRule)).toThrow('rule must be "mean"');
  });
});

describe("constant groups", () => {
  it("are dropped with all that belongs to them", () => {
    const groups = [
      [1, 1],
      [0, 1],
      [0, 0],
      [0.5, 0.25],
    ].map((rewards, step) => ({
      ...group(rewards, { tags: [`tag ${step}`] }),
      step,
    }));
    const kept = dropConstantGroups(groups);
    expect(kept.map(({ step, tags }) => [step, ...tags])).toEqual([
      [1, "tag 1"],
      [3, "tag 3"],
    ]);
    expect(dropConstantGroups([group([1, 1]), group([])])).toEqual([]);
  });
});

describe("data of an episode", () => {
  const image: ModelInputChunkLike = {
    type: "image",
    data: Uint8Array.of(1, 2),
    format: "png",
    expectedTokens: 3,
  };

  it("put turns together that continue each other", () => {
    const data = trajectoryData(episode([turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6])]), -0.5, {
      group: 3,
      trajectory: 1,
    });
    expect(data.map(plain)).toEqual([
      {
        input: [[1, 2, 3, 4, 5]],
        targets: [2, 3, 4, 5, 6],
        logprobs: [0, -0.125, -0.25, 0, -0.125],
        advantages: [0, -0.5, -0.5, 0, -0.5],
        mask: [0, 1, 1, 0, 1],
        group: 3,
        trajectory: 1,
      },
    ]);
  });

  it("begin again where the conversation was written again", () => {
    const turns = [turn([1, 2], [3, 4]), turn([1, 2, 4, 5], [6]), turn([1, 2, 4], [7])];
    expect(trajectoryData(episode(turns), 1).map((datum) => plain(datum).targets)).toEqual([
      [2, 3, 4],
      [2, 4, 5, 6],
      [2, 4, 7],
    ]);
  });

  it("leave masked turns in their place, without weight", () => {
    const turns = [turn([1], [2], { isMasked: true }), turn([1, 2, 3], [4])];
    const [datum] = trajectoryData(episode(turns), 2);
    expect(plain(datum!)).toMatchObject({
      mask: [0, 0, 1],
      advantages: [0, 0, 2],
      logprobs: [-0.125, 0, -0.125],
    });
    expect(trajectoryData(episode([turn([1], [2], { isMasked: true })]), 2)).toEqual([]);
  });

  it("are none where nothing was sampled, or nothing that anything was read before", () => {
    expect(trajectoryData(episode([turn([], [])]), 1)).toEqual([]);
    expect(trajectoryData(episode([turn([1, 2], [])]), 1)).toEqual([]);
    expect(trajectoryData(episode([turn([], [5])]), 1)).toEqual([]);
    // The end of an episode that ran out of time is a turn too.
    expect(trajectoryData(episode([turn([1], [2]), turn([], [])]), 1)).toHaveLength(1);
  });

  it("keep images whole, and know the same one again", () => {
    const again = { ...image, data: Uint8Array.of(1, 2) };
    const other = { ...image, data: Uint8Array.of(1, 3) };
    const withSecond = (second: ModelInputChunkLike) =>
      trajectoryData(episode([turn([9, image, 1], [2]), turn([9, second, 1, 2, image], [3])]), 1).map(plain);
    expect(withSecond(again)).toEqual([
      {
        input: [[9], "image", [1, 2], "image"],
        targets: [0, 0, 0, 1, 2, 0, 0, 0, 3],
        logprobs: [0, 0, 0, 0, -0.125, 0, 0, 0, -0.125],
        advantages: [0, 0, 0, 0, 1, 0, 0, 0, 1],
        mask: [0, 0, 0, 0, 1, 0, 0, 0, 1],
        group: 0,
        trajectory: 0,
      },
    ]);
    expect(withSecond(other)).toHaveLength(2);
    expect(withSecond({ ...image, format: "jpeg" } as ModelInputChunkLike)).toHaveLength(2);
    expect(withSecond({ ...image, expectedTokens: 2 } as ModelInputChunkLike)).toHaveLength(2);
  });

  it("refuse lists that do not belong together", () => {
    expect(() => assembleData([group([1, 0])], [])).toThrow(
      "advantages must have one entry for each of 1 groups",
    );
    expect(() => assembleData([group([1, 0])], [[1]])).toThrow(
      "advantages[0] must have one entry for each of 2 trajectories, got 1",
    );
    const short = turn([1], [2]);
    const broken = { ...short, action: { ...short.action, logprobs: new Float32Array(0) } };
    expect(() => trajectoryData(episode([broken]), 1)).toThrow(
      "turns[0].action.logprobs must have one entry",
    );
  });
});

describe("substeps", () => {
  it("have nearly the same size", () => {
    expect(splitEvenly([1, 2, 3, 4, 5, 6, 7], 3)).toEqual([
      [1, 2],
      [3, 4],
      [5, 6, 7],
    ]);
    expect(splitEvenly([1, 2], 5)).toEqual([[1], [2]]);
    expect(splitEvenly([], 2)).toEqual([]);
    expect(() => splitEvenly([1], 0)).toThrow("parts must be a positive integer, got 0");
  });
});

describe("divergences", () => {
  const data = assembleData(
    [group([1, 0])].map((each) => ({
      ...each,
      trajectories: [
        episode([turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6])]),
        episode([turn([1], [2, 3], { isMasked: true }), turn([1, 2, 3], [4])]),
      ],
    })),
    [[0.5, -0.5]],
  );

  it("are measured on trained tokens only", () => {
    const { "optim/entropy": entropy, ...kl } = klSampleTrain(data, [
      [9, -0.25, -0.5, 9, 0],
      [9, 9, -0.625],
    ]);
    // Differences of 1/8, 1/4, -1/8 and 1/2.
    expect(kl).toEqual({
      "optim/kl_sample_train_v1": 0.75 / 4,
      "optim/kl_sample_train_v2": (0.5 * (1 / 64 + 1 / 16 + 1 / 64 + 1 / 4)) / 4,
    });
    expect(entropy).toBe((0.125 + 0.25 + 0.125 + 0.125) / 4);
    expect(klSampleTrain([], [])).toEqual({});
    expect(() => klSampleTrain(data, [[1]])).toThrow("There are 1 logprobs for the 5 targets of data[0].");
  });

  it("ask another model about the whole sequence", async () => {
    const asked: number[][] = [];
    const sampler = {
      computeLogprobs: async (prompt: ModelInput) => {
        asked.push(prompt.toInts());
        return prompt.toInts().map((_, at) => (at === 0 ? null : -1));
      },
    } as never;
    expect(await postKl(data, sampler)).toEqual({
      kl_pre_post_v1: (0.875 + 0.75 + 0.875 + 0.875) / 4,
      kl_pre_post_v2: (0.5 * (3 * 0.875 ** 2 + 0.75 ** 2)) / 4,
    });
    expect(asked).toEqual([
      [1, 2, 3, 4, 5, 6],
      [1, 2, 3, 4],
    ]);
  });

  it("take servers that leave the first token out, and no gaps where it matters", async () => {
    const answering = (logprobs: (number | null)[]) =>
      logprobsUnder({ computeLogprobs: async () => logprobs } as never, data.slice(0, 1));
    const expected = [Float32Array.of(0, -1, -2, 0, -3)];
    expect(await answering([null, null, -1, -2, null, -3])).toEqual(expected);
    expect(await answering([0, -1, -2, null, -3])).toEqual(expected);
    await expect(answering([null, null, -1, null, null, -3])).rejects.toThrow(
      "The server sent no logprob of token 3 of data[0].",
    );
    await expect(answering([null, -1])).rejects.toThrow("There are 2 logprobs for the 5 targets of data[0].");
  });

  it("add up over what follows", () => {
    expect([...discountedSums([1, 0, 2, 4], 0.5)]).toEqual([2, 2, 4, 4]);
    expect([...discountedSums([1, 0, 2], 0)]).toEqual([1, 0, 2]);
  });

  it("are refused with settings that make no sense", () => {
    const reference = { computeLogprobs: async () => [] };
    expect(() => klPenalty({ reference, coefficient: Number.NaN })).toThrow(
      "coefficient must be a finite number",
    );
    expect(() => klPenalty({ reference, coefficient: 1, discount: 1.1 })).toThrow(
      "discount must be a number from 0",
    );
  });
});

describe("losses", () => {
  it("are refused with unknown settings or names", () => {
    expect(() => policyLoss("ppo", { clipRange: 0.2 } as never)).toThrow("unknown field config.clipRange");
    expect(() => policyLoss("gspo", { beta: 0.2 } as never)).toThrow("unknown field config.beta");
    expect(() => policyLoss("importance_sampling", { beta: 1 } as never)).toThrow(
      "unknown field config.beta",
    );
    expect(() => policyLoss("grpo" as never)).toThrow(
      "name must be one of importance_sampling, ppo, cispo, dro, gspo, dapo",
    );
  });
});

describe("metrics of a batch", () => {
  const last = (metrics: Metrics) => [turn([1, 2, 3], [4, 5], { metrics })];

  it("count episodes, tokens, rewards and ends", () => {
    const groups = [
      group([1, 0], { tags: ["sums"] }),
      group([0, 0], {
        tags: ["sums", "hard"],
        trajectories: [
          episode(last({ format: 1 }), { end: "completed" }),
          episode([...last({}), ...last({ format: 0 })], { end: "max_turns" }),
        ],
        groupRewards: [1, 1],
        metrics: [{ won: 1 }, {}],
      }),
    ];
    const metrics = trajectoryMetrics(groups);
    expect(metrics).toMatchObject({
      "env/all/ac_tokens_per_turn": 8 / 5,
      "env/all/ob_tokens_per_turn": 13 / 5,
      "env/all/turns_per_episode": 5 / 4,
      "env/all/total_episodes": 4,
      "env/all/total_turns": 5,
      "env/all/total_ac_tokens": 8,
      "env/all/total_ob_tokens": 13,
      "env/all/reward/total": 3 / 4,
      "env/all/format": 0.5,
      "env/all/won": 1,
      "env/all/stop/completed": 1 / 4,
      "env/all/stop/max_turns": 1 / 4,
      "env/all/by_group/frac_mixed": 0.5,
      "env/all/by_group/frac_all_good": 0.5,
      "env/all/by_group/frac_all_bad": 0,
      "env/hard/total_episodes": 2,
      "env/hard/reward/total": 1,
      "env/hard/stop/max_turns": 0.5,
      "env/sums/total_episodes": 4,
    });
    const names = new Set(Object.keys(metrics).map((name) => name.split("/")[1]));
    expect(names).toEqual(new Set(["all", "sums", "hard"]));
  });

  it("leave tags out that tell nothing", () => {
    const names = Object.keys(
      trajectoryMetrics([group([1], { tags: ["sums"] }), group([0], { tags: ["sums"] })]),
    );
    expect(names.every((name) => name.startsWith("env/all/"))).toBe(true);
  });

  it("are zeros for nothing at all", () => {
    const metrics = trajectoryMetrics([]);
    expect(Object.keys(metrics)).toHaveLength(11);
    expect(Object.values(metrics).every((value) => value === 0)).toBe(true);
  });

  it("know nothing of groups that failed", () => {
    const failed = group([], { tags: ["hard"] });
    expect(trajectoryMetrics([group([1, 1], { tags: ["sums"] }), failed])).toEqual(
      trajectoryMetrics([group([1, 1], { tags: ["sums"] })]),
    );
  });

  it("say how old the weights were", () => {
    expect(
      samplerMetrics([
        { samplerStep: 3, seconds: 1 },
        { samplerStep: 6, seconds: 2 },
      ]),
    ).toEqual({
      "sampling_client/step_max": 6,
      "sampling_client/step_min": 3,
      "sampling_client/step_mean": 4.5,
      "time/sampling_time_max": 2,
      "time/sampling_time_min": 1,
      "time/sampling_time_mean": 1.5,
    });
    expect(samplerMetrics([])).toEqual({});
  });
});
