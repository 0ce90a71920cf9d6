import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { TrainingClient } from "../../src/clients/index.js";
import type { TrajectoryGroup } from "../../src/cookbook/environments/index.js";
import { gspoLoss } from "../../src/cookbook/reinforcement/gspo.js";
import {
  type AdvantageRule,
  assembleData,
  groupAdvantages,
  klPenalty,
  klSampleTrain,
  type PolicyLossName,
  policyLoss,
  postKl,
  type RolloutDatum,
} from "../../src/cookbook/reinforcement/index.js";
import { samplerPolicy } from "../../src/cookbook/rollouts/index.js";
import type { ServiceClient } from "../../src/index.js";
import type { LossConfig } from "../../src/local/engine/engine.js";
import { tokenLosses } from "../../src/local/engine/kernels/token-losses.js";
import { gatherLossInputs } from "../../src/local/engine/training/loss-inputs.js";
import { Tensor } from "../../src/training/autograd/index.js";
import { evaluateCustomLoss } from "../../src/training/custom-loss.js";
import { type Datum, ModelInput, type PublishedLoss } from "../../src/wire/index.js";
import { startTinyBackend, TINY } from "../support/tiny-backend.js";

interface GoldenDatum {
  readonly group: number;
  readonly trajectory: number;
  readonly mask: number[];
  readonly advantages: number[];
  readonly logprobs: number[];
  readonly trainingLogprobs: number[];
}

interface Golden {
  readonly batches: {
    readonly data: GoldenDatum[];
    readonly losses: { name: PolicyLossName; config: object; loss: number; gradients: number[][] }[];
    readonly reference: number[][];
    readonly penalties: { coefficient: number; discount: number; mean: number; advantages: number[][] }[];
  }[];
  readonly advantages: ({ rewards: number[] } & Record<AdvantageRule, number[]>)[];
}

/** What PyTorch says: scripts/golden/make_policy_loss_fixtures.py. */
const golden = JSON.parse(
  readFileSync(new URL("../fixtures/losses/policy.json", import.meta.url), "utf8"),
) as Golden;

function rolloutDatum({ group, trajectory, mask, advantages, logprobs }: GoldenDatum): RolloutDatum {
  const tokens = Int32Array.from(mask, (_, at) => at + 1);
  return {
    input: ModelInput.fromInts(tokens),
    targetTokens: tokens,
    logprobs: Float32Array.from(logprobs),
    advantages: Float32Array.from(advantages),
    mask: Float32Array.from(mask),
    group,
    trajectory,
  };
}

interface Learnt {
  loss: number;
  gradients: number[][];
}

/** A trainer with these logprobs: the built-in engine's losses, and custom ones as the client works them out. */
function trainerWith(logprobs: readonly Float32Array[]) {
  const learnt: Promise<Learnt>[] = [];
  const training = {
    forwardBackward(data: readonly Datum[], lossFn: PublishedLoss, { config = {} }: { config?: LossConfig }) {
      const sums = { loss: 0, clippedTokens: 0 };
      const gradients = data.map(({ lossFnInputs }, index) => {
        const arrays = Object.entries(lossFnInputs).map(([name, { data: values }]) => [name, values]);
        const inputs = gatherLossInputs([Object.fromEntries(arrays)], config);
        return [...tokenLosses(lossFn, inputs, logprobs[index]!, sums)];
      });
      learnt.push(Promise.resolve({ loss: sums.loss, gradients }));
    },
    forwardBackwardCustom(data: readonly Datum[], lossFn: Parameters<typeof evaluateCustomLoss>[0]) {
      const variables = logprobs.map((each) => new Tensor(each, [each.length], { requiresGradient: true }));
      const evaluated = evaluateCustomLoss(lossFn, data, variables);
      learnt.push(
        evaluated.then(({ loss, gradients }) => ({ loss, gradients: gradients.map((each) => [...each]) })),
      );
    },
  };
  return { training: training as unknown as TrainingClient, learnt };
}

function expectClose(own: readonly number[], expected: readonly number[], what: string, within = 2e-6): void {
  expect(own.length, what).toBe(expected.length);
  for (const [at, value] of expected.entries())
    expect(Math.abs(own[at]! - value), `${what} ${at}: ${own[at]} for ${value}`).toBeLessThanOrEqual(
      within * Math.max(1, Math.abs(value)),
    );
}

describe.each(
  golden.batches.map((batch, index) => ({ ...batch, kind: ["one advantage each", "one per token"][index] })),
)("episodes with $kind", ({ data, losses, reference, penalties }) => {
  it.each(losses.map((each, place) => [`${each.name} ${place}`, each] as const))(
    "%s: the loss and gradients of PyTorch",
    async (_, { name, config, loss, gradients }) => {
      const { training, learnt } = trainerWith(data.map((each) => Float32Array.from(each.trainingLogprobs)));
      policyLoss(name, config).forwardBackward(training, data.map(rolloutDatum));
      const own = await learnt[0]!;
      expectClose([own.loss], [loss], "loss");
      for (const [index, gradient] of gradients.entries())
        expectClose(own.gradients[index]!, gradient, `gradients of data[${index}]`);
    },
  );

  it.each(penalties)(
    "KL penalty $coefficient, discount $discount",
    async ({ mean, advantages, ...options }) => {
      const rollouts = data.map(rolloutDatum);
      let asked = 0;
      const sampler = {
        // As a server answers that knows nothing of the first token.
        computeLogprobs: async () => [null, ...reference[asked++]!],
      };
      const penalty = klPenalty({ ...options, reference: sampler as never });
      const metrics = await penalty.apply(rollouts, { groups: [], signal: new AbortController().signal });
      expectClose([metrics["kl_policy_base"]!], [mean], "mean");
      for (const [index, expected] of advantages.entries())
        expectClose([...rollouts[index]!.advantages], expected, `advantages of data[${index}]`);
    },
  );
});

describe("GSPO", () => {
  const { data } = golden.batches[0]!;
  const rollouts = data.map(rolloutDatum);
  const lossAt = async (logprobs: readonly number[][], clip: Parameters<typeof gspoLoss>[1]) => {
    const variables = logprobs.map(
      (each) => new Tensor(Float64Array.from(each), [each.length], { requiresGradient: true }),
    );
    return evaluateCustomLoss(gspoLoss(rollouts, clip), [], variables);
  };

  it.each([
    { clipLowThreshold: 0.8, clipHighThreshold: 1.2 },
    { clipLowThreshold: 0.99, clipHighThreshold: 1.01 },
    { clipLowThreshold: 0, clipHighThreshold: 1e9 },
  ])(
    "has the gradients of its own differences, clipped at $clipLowThreshold and $clipHighThreshold",
    async (clip) => {
      const at = data.map((each) => each.trainingLogprobs);
      const { gradients } = await lossAt(at, clip);
      const step = 1e-5;
      for (const [index, logprobs] of at.entries()) {
        const moved = async (position: number, by: number) =>
          (await lossAt(at.with(index, logprobs.with(position, logprobs[position]! + by)), clip)).loss;
        for (const position of logprobs.keys()) {
          const slope = ((await moved(position, step)) - (await moved(position, -step))) / (2 * step);
          expect(Math.abs(slope - gradients[index]![position]!)).toBeLessThan(1e-8);
        }
      }
    },
  );

  it("counts the tokens of episodes that are clipped", async () => {
    const metrics = async (low: number, high: number) =>
      (
        await lossAt(
          data.map((each) => each.trainingLogprobs),
          { clipLowThreshold: low, clipHighThreshold: high },
        )
      ).metrics["clippedTokens:sum"];
    expect(await metrics(0, 1e9)).toBe(0);
    const all = data.reduce((sum, { mask }) => sum + mask.filter(Boolean).length, 0);
    // Between ratios that do not occur, all tokens are clipped on the side of their advantage.
    expect((await metrics(1e8, 1e9))! + (await metrics(1e-9, 1e-8))!).toBe(all);
  });
});

describe("advantages", () => {
  const group = (rewards: readonly number[]): TrajectoryGroup => ({
    trajectories: rewards.map(() => ({ turns: [], finalObservation: ModelInput.empty() })),
    groupRewards: rewards,
    metrics: [],
    failures: [],
    tags: [],
  });
  it.each(golden.advantages)("are PyTorch's: $rewards", ({ rewards, ...rules }) => {
    for (const [rule, expected] of Object.entries(rules))
      expectClose([...groupAdvantages(group(rewards), rule as AdvantageRule)], expected, rule);
  });
});

describe("on the built-in backend", () => {
  let close: () => Promise<void>;
  let service: ServiceClient;
  beforeAll(async () => {
    ({ service, close } = await startTinyBackend());
  });
  afterAll(() => close());

  /** Two tries at a prompt, in two turns of which the second reads the first. */
  async function sampled(): Promise<RolloutDatum[]> {
    const policy = samplerPolicy(await service.createSamplingClient({ baseModel: TINY }), {
      maxTokens: 4,
    });
    const episode = async (seed: number) => {
      const seen = [5, 6, 7];
      const turns = [];
      for (const news of [[], [8, 9]]) {
        seen.push(...news);
        const observation = ModelInput.fromInts([...seen]);
        const action = await policy.act({ prompt: observation, stop: [] }, { seed });
        seen.push(...action.tokens);
        turns.push({
          observation,
          action,
          reward: seed,
          isDone: false,
          isMasked: false,
          metrics: {},
          logs: {},
        });
      }
      return { turns, finalObservation: ModelInput.empty() };
    };
    const trajectories = [await episode(1), await episode(2)];
    const group = { trajectories, groupRewards: [0, 0.5], metrics: [{}, {}], failures: [], tags: [] };
    // Not those of the group, whose sum would be 0 however it is scaled.
    return assembleData([group], [[1, -0.25]]);
  }

  it("every loss finds the weights that sampled, and a step moves them", async () => {
    const data = await sampled();
    expect(data.map(({ mask }) => mask.join(""))).toEqual(["001111001111", "001111001111"]);
    const sumOver = (value: (datum: RolloutDatum, at: number) => number) =>
      data.reduce(
        (sum, datum) => datum.mask.reduce((some, each, at) => some + each * value(datum, at), sum),
        0,
      );
    const byRatio = -sumOver(({ advantages }, at) => advantages[at]!);
    const byLogprob = -sumOver(({ advantages, logprobs }, at) => advantages[at]! * logprobs[at]!);
    const expected = {
      importance_sampling: byRatio,
      ppo: byRatio,
      cispo: byLogprob,
      dro: byLogprob,
      dapo: byRatio / 16,
      gspo: byRatio / 16,
    };
    for (const [name, loss] of Object.entries(expected) as [PolicyLossName, number][]) {
      const training = await service.createLoraTrainingClient({ baseModel: TINY, rank: 4 });
      const pass = policyLoss(name).forwardBackward(training, data);
      const step = training.optimStep({ learningRate: 0.05 });
      const { metrics, lossFnOutputs } = await pass;
      expect(metrics["loss:sum"], name).toBeCloseTo(loss, 4);
      const trained = lossFnOutputs.map((output) => output["logprobs"]!.data);
      expect(klSampleTrain(data, trained)["optim/kl_sample_train_v2"], name).toBeLessThan(1e-10);
      await step;
      const moved = await postKl(data, await training.saveWeightsAndGetSamplingClient());
      expect(moved["kl_pre_post_v2"], name).toBeGreaterThan(1e-6);
    }
  });

  it("GSPO takes one pass where the server runs losses, with the same numbers", async () => {
    const data = await sampled();
    const loss = policyLoss("gspo", { clipLowThreshold: 0.999, clipHighThreshold: 1.001 });
    const trained = await Promise.all(
      [true, false].map(async (isPrepared) => {
        const training = await service.createLoraTrainingClient({ baseModel: TINY, rank: 4, seed: 1 });
        if (isPrepared) await loss.prepare!(training);
        const metrics: Readonly<Record<string, number>>[] = [];
        for (let step = 0; step < 3; step++) {
          const pass = loss.forwardBackward(training, data);
          await training.optimStep({ learningRate: 0.01 });
          metrics.push((await pass).metrics);
        }
        return metrics;
      }),
    );
    const [onServer, inClient] = trained as [Record<string, number>[], Record<string, number>[]];
    for (const [step, metrics] of onServer.entries()) {
      expect(metrics).not.toHaveProperty("surrogate_loss:sum");
      expect(metrics["loss:sum"]).toBeCloseTo(inClient[step]!["loss:sum"]!, 5);
      expect(metrics["clippedTokens:sum"]).toBe(inClient[step]!["clippedTokens:sum"]);
    }
    expect(onServer.at(-1)!["clippedTokens:sum"]).toBeGreaterThan(0);
  });

  it("nothing is taken off for a model that is the reference itself", async () => {
    const data = await sampled();
    const before = data.map(({ advantages }) => [...advantages]);
    const reference = await service.createSamplingClient({ baseModel: TINY });
    const penalty = klPenalty({ reference, coefficient: 10, discount: 0.9 });
    const metrics = await penalty.apply(data, { groups: [], signal: new AbortController().signal });
    expect(metrics["kl_policy_base"]).toBeCloseTo(0, 6);
    for (const [index, { advantages }] of data.entries())
      expectClose([...advantages], before[index]!, "advantages", 1e-4);
  });
});
