import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import type { GroupSource, Problem } from "../../src/cookbook/environments/index.js";
import {
  type EnvironmentOptions,
  environmentEvaluator,
  type ProblemOptions,
  planReinforcement,
  type ReinforcementSettings,
  type RolloutGroup,
  type TrainReinforcementOptions,
  trainReinforcement,
} from "../../src/cookbook/reinforcement/index.js";
import { retryOnFailure } from "../../src/cookbook/rollouts/index.js";
import { holdTimersOf } from "../support/held-timers.js";
import { longTest } from "../support/long.js";
import { atStep, expectSameMetrics, lines, weightsAt } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const place = await TrainingBackend.forTests("reinforcement");
const { home } = place;

const sum = (index: number) => {
  const [a, b] = [(index * 7) % 60, (index * 4) % 40];
  return { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
};
type Sum = ReturnType<typeof sum>;
const SUMS = Array.from({ length: 30 }, (_, index) => sum(index));
const isRight = ({ problem, text }: { problem: Sum; text: string }) => (text === problem.answer ? 1 : 0);

/** Questions that any number answers. */
const NUMBERS = ["57 + 86", "68 + 75", "79 + 46", "85 + 58"].map((sum) => ({
  prompt: `What is ${sum}?`,
  answer: "",
}));
const isEven = ({ text }: { text: string }) => (/[02468]$/.test(text) ? 1 : 0);

type Overrides = Partial<ReinforcementSettings> & {
  readonly [K in "problems" | "reward"]?: ProblemOptions<Sum>[K] | undefined;
} & Partial<Pick<EnvironmentOptions, "environments">>;

/** Five steps of four groups with four tries. */
const train = (options: Overrides = {}) =>
  trainReinforcement<Sum>({
    service: place.service,
    model: "tinkerts/nano",
    problems: SUMS,
    reward: isRight,
    groupSize: 4,
    groupsPerBatch: 4,
    steps: 5,
    maxTokens: 6,
    rank: 4,
    save: { everySteps: 2 },
    loggers: [],
    ...options,
  } as TrainReinforcementOptions<Sum>);

const groupIndices = (seen: readonly (readonly RolloutGroup[])[]) =>
  seen.map((groups) => groups.map(({ index }) => index));

describe("trainReinforcement", () => {
  longTest("makes likelier what is rewarded, and shows it in metrics under upstream's names", async () => {
    const folder = join(home, "learns");
    const run = await train({
      folder,
      problems: NUMBERS,
      reward: isEven,
      groupSize: 8,
      steps: 4,
      learningRate: 8e-3,
      evaluators: [
        environmentEvaluator({
          problems: NUMBERS,
          reward: (answer) => ({ reward: isEven(answer), metrics: { length: answer.text.length } }),
          groupSize: 8,
          maxTokens: 6,
        }),
        environmentEvaluator({
          name: "greedy",
          problems: NUMBERS,
          reward: isEven,
          groupSize: 8,
          temperature: 0,
        }),
      ],
      evaluateEvery: 4,
      best: true,
      kl: { coefficient: 0.01 },
      measurePostKl: true,
    });
    expect(run).toMatchObject({ isFinished: true, steps: 4, restores: 0 });
    const metrics = await lines(folder, "metrics.jsonl");
    expect(metrics.map(({ step }) => step)).toEqual([...Array(5).keys()]);
    const rewards = metrics.slice(0, 4).map((line) => Number(line["env/all/reward/total"]));
    expect(rewards[0]).toBeLessThan(0.25);
    expect(rewards.at(-1)).toBeGreaterThan(0.9);
    expect(metrics.at(-1)!["test/env/all/reward/total"]).toBeGreaterThan(
      Number(metrics[0]!["test/env/all/reward/total"]),
    );
    expect(metrics[0]!["test/env/all/length"]).toBeGreaterThan(1);
    // The likeliest answer is one, however often it is asked for.
    expect(metrics.at(-1)!["greedy/env/all/by_group/frac_mixed"]).toBe(0);
    expect(metrics[0]!["test/env/all/by_group/frac_mixed"]).toBeGreaterThan(0);
    expect(run.best).toMatchObject({ metric: "test/env/all/reward/total", batch: 4 });
    for (const [step, line] of metrics.slice(0, 4).entries()) {
      expect(line).toMatchObject({
        "progress/batch": step,
        "progress/done_frac": (step + 1) / 4,
        "optim/lr": 8e-3,
        "optim/kl_sample_train_v1": 0,
        "optim/kl_sample_train_v2": 0,
        "env/all/total_episodes": 32,
      });
      expect(line["kl_policy_base"]).toBeGreaterThanOrEqual(step === 0 ? 0 : 1e-6);
      expect(Math.abs(Number(line["kl_pre_post_v1"]))).toBeGreaterThan(0);
    }
    const rollouts = await lines(folder, "iteration_000001/train_rollout_summaries.jsonl");
    expect(rollouts).toHaveLength(32);
    const [{ steps, ...rollout }] = rollouts as [{ steps: Record<string, number[]>[] }];
    expect(rollout).toMatchObject({ split: "train", iteration: 1, group_idx: 0, sampling_client_step: 1 });
    expect(steps[0]!["advantages"]).toHaveLength(steps[0]!["tokens"]!.length);
    const tests = await lines(folder, "iteration_000004/eval_test_rollout_summaries.jsonl");
    expect(tests).toHaveLength(32);
    expect(tests[0]).toMatchObject({ split: "eval/test", iteration: 4, sampling_client_step: 4 });
    expect(JSON.parse(await readFile(join(folder, "config.json"), "utf8"))).toMatchObject({
      group_size: 8,
      groups_per_batch: 4,
      lr_schedule: "constant",
      loss_fn: "importance_sampling",
      kl_penalty_coef: 0.01,
      kl_reference: "tinkerts/nano",
    });
  });

  longTest("ends bit for bit the same when it was paused, aborted and cut off from its server", async () => {
    const settings: Overrides = { substeps: 2, adam: { gradClipNorm: 1 }, schedule: "linear", warmup: 1 };
    const whole = await train({ ...settings, folder: join(home, "whole") });
    const folder = join(home, "disturbed");
    const pause = new AbortController();
    const paused = await train({
      ...settings,
      folder,
      pauseSignal: pause.signal,
      onRollouts: () => pause.abort(),
    });
    expect(paused.isFinished).toBe(false);
    expect(paused.steps).toBeLessThan(4);

    const abort = new AbortController();
    const reward = (answer: { problem: Sum; text: string }) => {
      abort.abort();
      return isRight(answer);
    };
    await expect(train({ ...settings, folder, reward, signal: abort.signal })).rejects.toThrow(
      "The run was aborted",
    );

    let restarted: Promise<void> | undefined;
    let graded = 0;
    const cut = (answer: { problem: Sum; text: string }) => {
      graded += 1;
      if (graded === 6) restarted = place.restart();
      return isRight(answer);
    };
    const run = await train({ ...settings, folder, reward: cut });
    await restarted;
    await place.renewService();
    expect(run.restores).toBeGreaterThan(0);
    expect(await weightsAt(place.backend, run.statePath)).toEqual(
      await weightsAt(place.backend, whole.statePath),
    );
    const metricsIn = (run: string) => lines(run, "metrics.jsonl");
    expectSameMetrics(await metricsIn(folder), await metricsIn(join(home, "whole")));
  });

  it("streamed, trains on the same groups in parts, of sizes that do not divide, with the same weights", async () => {
    const seen: (readonly RolloutGroup[])[] = [];
    const settings: Overrides = { groupsPerBatch: 5, steps: 2, substeps: 2 };
    const whole = await train(settings);
    const streamed = await train({
      ...settings,
      mode: "streamed",
      minibatches: 2,
      onRollouts: ({ groups }) => void seen.push(groups),
    });
    expect(groupIndices(seen)).toEqual([
      [0, 1, 2, 3, 4],
      [5, 6, 7, 8, 9],
    ]);
    expect(streamed.metrics).toMatchObject({ "sampling_client/step_min": 1, "sampling_client/step_max": 1 });
    expect(await weightsAt(place.backend, streamed.statePath)).toEqual(
      await weightsAt(place.backend, whole.statePath),
    );
  });

  it("asynchronous, samples ahead within its bound, and trains each step once, also after a pause", async () => {
    const folder = join(home, "asynchronous");
    const seen: (readonly RolloutGroup[])[] = [];
    const pause = new AbortController();
    const settings: Overrides = {
      folder,
      mode: "asynchronous",
      maxStepsOffPolicy: 2,
      steps: 6,
      onRollouts: ({ groups }) => void seen.push(groups),
    };
    const paused = await train({
      ...settings,
      pauseSignal: pause.signal,
      loggers: [atStep(1, () => pause.abort())],
    });
    expect(paused.isFinished).toBe(false);
    const run = await train(settings);
    expect(run).toMatchObject({ isFinished: true, steps: 6, restores: 0 });
    const metrics = await lines(folder, "metrics.jsonl");
    expect(metrics.map((line) => line["training_client/step"])).toEqual([0, 1, 2, 3, 4, 5]);
    const behind = metrics.map((line, step) => step - Number(line["sampling_client/step_min"]));
    expect(Math.max(...behind)).toBeLessThanOrEqual(2);
    expect(Math.max(...behind)).toBeGreaterThan(0);
    expect(groupIndices(seen).flat()).toEqual([...Array(24).keys()]);
    expect(run.config).toMatchObject({ loss_fn: "ppo", async_config: { max_steps_off_policy: 2 } });
  });
});

describe("a run without anything to learn from", () => {
  it("says so instead of counting steps, and what to do", async () => {
    const counts: number[] = [];
    const reward = () => {
      counts.push(1);
      return 0.25;
    };
    const run = train({ reward, groupSize: 2, groupsPerBatch: 2 });
    await expect(run).rejects.toThrow(
      /^Nothing was trained: of the last 20 groups in 20 all episodes were rewarded alike \(0\.250 on average\), so there is nothing to learn from\. Easier or harder problems/,
    );
    // So many batches are tried, and no more.
    expect(counts).toHaveLength(40);
  });

  it("passes over batches whose groups are all constant, in every mode", async () => {
    for (const mode of ["synchronous", "streamed", "asynchronous"] as const) {
      const folder = join(home, `constant-${mode}`);
      const seen: (readonly RolloutGroup[])[] = [];
      const environments = differing(({ index, member }) => (index >= 4 && index < 8 ? 1 : member));
      const options = { folder, steps: 3, groupsPerBatch: 2, groupSize: 2, mode, save: { everySteps: 1 } };
      const run = await train({
        ...options,
        ...environments,
        onRollouts: ({ groups }) => void seen.push(groups),
      });
      expect(run.steps).toBe(3);
      expect(groupIndices(seen), mode).toEqual([
        [0, 1],
        [2, 3],
        [4, 5, 6, 7, 8, 9],
      ]);
      const checkpoints = await lines(folder, "checkpoints.jsonl");
      expect(checkpoints.map((line) => line["loop_state"])).toEqual([
        undefined,
        { nextGroup: 2 },
        { nextGroup: 4 },
        { nextGroup: 10 },
      ]);
    }
  });

  it("ends early, with the steps it has trained and the last weights measured, when differences or groups end", async () => {
    const notes: string[] = [];
    const logger = {
      config: () => {},
      metrics: () => {},
      note: (text: string) => void notes.push(text),
      close: () => {},
    };
    const measured: number[] = [];
    const evaluator = {
      name: "steps",
      evaluate: async ({ step }: { step: number }) => {
        measured.push(step);
        return {};
      },
    };
    const options: Overrides = {
      steps: 50,
      groupSize: 2,
      groupsPerBatch: 2,
      loggers: [logger],
      evaluators: [evaluator],
    };
    const solved = await train({ ...options, ...differing(({ index, member }) => (index < 2 ? member : 1)) });
    expect(solved).toMatchObject({ isFinished: true, steps: 1 });
    expect(notes.at(-2)).toMatch(
      /^The run ends after 1 of 50 steps: of the last 20 groups in 20 all episodes/,
    );
    expect(notes.at(-1)).toMatch(/^Trained 1 step/);
    expect(measured).toEqual([0, 1]);

    const few = (function* () {
      for (let index = 0; index < 7; index += 1) yield sum(index);
    })();
    const ended = await train({ ...options, problems: few, reward: alternating(), groupsPerBatch: 3 });
    // Two of three groups, and one that is left over.
    expect(ended).toMatchObject({ isFinished: true, steps: 3 });
    expect(notes.at(-2)).toBe("The run ends after 3 of 50 steps: the environments have come to their end.");
  });
});

describe("episodes that fail", () => {
  it("end the run with a sentence that names the group, or are tried again", async () => {
    const failing = (times: number) => {
      let count = 0;
      return (answer: { problem: Sum; text: string }) => {
        count += 1;
        if (count > 5 && count <= 5 + times) throw new TypeError("answers.find is not a function");
        return isRight(answer);
      };
    };
    for (const mode of ["synchronous", "streamed", "asynchronous"] as const)
      await expect(train({ mode, reward: failing(1) }), mode).rejects.toThrow(
        /^Group \d+ failed: .*answers\.find is not a function/,
      );
    const run = await train({ reward: failing(2), strategy: retryOnFailure(), steps: 2 });
    expect(run.steps).toBe(2);
    expect(run.metrics).toMatchObject({ "rollout_errors/TypeError": 2, "rollout_errors/total": 2 });
  });

  it("that never answer are ended by their time, and a run by its signal", async () => {
    let numHanging = 0;
    let onHanging = () => {};
    const never = (answer: { problem: Sum; text: string }) => {
      if (answer.problem !== SUMS[0]) return isRight(answer);
      numHanging += 1;
      onHanging();
      return new Promise<number>(() => {});
    };
    const timers = holdTimersOf(3001);
    const running = train({
      reward: never,
      problems: SUMS.slice(0, 4),
      steps: 1,
      limits: { timeoutMs: 3001 },
    });
    // All others have come to an end.
    await vi.waitFor(() => expect([numHanging, timers.waiting]).toEqual([4, 4]));
    timers.fire();
    const run = await running;
    expect(run.steps).toBe(1);
    expect(run.metrics["env/all/stop/rollout_timeout"]).toBe(0.25);
    const abort = new AbortController();
    onHanging = () => abort.abort();
    const hanging = train({ reward: never, problems: SUMS.slice(0, 4), signal: abort.signal });
    await expect(hanging).rejects.toThrow("The run was aborted");
  });
});

describe("options", () => {
  it("tell beforehand what a run would do, and train nothing", async () => {
    const before = (await place.service.createRestClient().listTrainingRuns()).items.length;
    const plan = await planReinforcement({
      service: place.service,
      model: "tinkerts/nano",
      problems: SUMS,
      reward: isRight,
      groupsPerBatch: 8,
      mode: "asynchronous",
    });
    expect(plan.config).toMatchObject({ steps: 4, group_size: 16, groups_per_batch: 8, learning_rate: 1e-3 });
    expect(plan.description).toMatch(
      /steps +4 of 8 groups with 16 tries each, asynchronous, at most 1 step behind/,
    );
    expect(plan.description).toMatch(/loss +ppo, advantages by mean/);
    expect((await place.service.createRestClient().listTrainingRuns()).items.length).toBe(before);
  });

  it("are refused with a sentence that names the field", async () => {
    const endless = (function* () {
      for (;;) yield sum(0);
    })();
    let closed = 0;
    const source: GroupSource = { group: () => undefined, close: () => void closed++ };
    await planReinforcement({
      service: place.service,
      model: "tinkerts/nano",
      environments: source,
      steps: 1,
    });
    expect(closed).toBe(0);
    const refused: [Overrides | object, RegExp][] = [
      [{ problems: undefined }, /^problems must be a list of problems/],
      [{ problems: [] }, /^problems must not be empty/],
      [{ problems: [{ question: "?" }] }, /problems\[0\] must have a prompt or messages, and has neither/],
      [{ reward: 1 }, /^reward must be a function of an answer/],
      [{ reward: () => "good" }, /reward must return a finite number/],
      [{ environments: source }, /^environments have problems and rewards of their own/],
      [
        { problems: undefined, reward: undefined, environments: [] },
        /^environments must be a source of groups/,
      ],
      [
        { problems: undefined, reward: undefined, environments: source, groupSize: undefined },
        /^Nothing was trained: the environments have come to their end\./,
      ],
      [
        { problems: undefined, reward: undefined, environments: source },
        /^groupSize cannot be set: the given environments already determine it/,
      ],
      [{ problems: endless, steps: undefined }, /^steps must be given: the number of problems is unknown/],
      [{ groupSize: 0 }, /^groupSize must be a positive integer, got 0/],
      [{ temperature: 0 }, /^temperature must be a number above 0/],
      [{ mode: "parallel" }, /^mode must be "synchronous", "streamed" or "asynchronous", got "parallel"/],
      [{ minibatches: 2 }, /^minibatches needs mode "streamed" or "asynchronous"/],
      [{ maxStepsOffPolicy: 1 }, /^maxStepsOffPolicy needs mode "asynchronous"/],
      [{ kl: { coefficient: -1 } }, /^kl\.coefficient must be a number above 0, got -1/],
      [{ kl: { coeff: 1 } }, /^unknown field kl\.coeff/],
      [{ loss: { name: "ppo", config: { clip: 1 } } }, /clip/],
      [{ loss: "reinforce" }, /^loss must be "importance_sampling", "ppo", .*, got "reinforce"/],
      [{ loss: { name: "grpo" } }, /^loss\.name must be "importance_sampling", "ppo"/],
      [{ loss: 5 }, /^loss must be an object, got 5/],
      [{ kl: 0.1 }, /^kl must be an object, got 0\.1/],
      [{ groupSize: 1 }, /^groupSize must be at least 2: one answer alone is compared with nothing/],
      [{ penalties: [] }, /^penalties must be a function, got a list of 0/],
      [{ onRollouts: 4 }, /^onRollouts must be a function, got 4/],
      [{ strategy: retryOnFailure }, /^strategy must be a strategy, as failFast\(\) or retryOnFailure\(\)/],
      [{ toolExecution: "paralel" }, /^toolExecution must be "parallel" or "sequential", got "paralel"/],
      [{ limits: { maxTurn: 3 } }, /^unknown field limits\.maxTurn; did you mean maxTurns\?/],
      [{ parseErrors: { retries: 3 } }, /^unknown field parseErrors\.retries/],
      [{ termination: { zeroRewardOnLimits: true } }, /^unknown field termination\.zeroRewardOnLimits/],
      [{ evaluators: { name: "test" } }, /^evaluators must be a list, got an object/],
      [{ loggers: {} }, /^loggers must be a list, got an object/],
      [{ folder: 7 }, /^folder must be a non-empty string, got 7/],
      [{ adam: { learningRate: 1 } }, /^unknown field adam\.learningRate/],
      [{ best: true }, /^best needs evaluators/],
      [{ advantages: "median" }, /^advantages must be "mean", "mean_deviation" or "leave_one_out"/],
      [{ limits: { maxTurns: 0 } }, /^limits\.maxTurns must be a positive integer/],
      [{ group_size: 3 }, /^unknown field group_size; did you mean groupSize\?/],
    ];
    for (const [options, message] of refused)
      await expect(train(options as Overrides), String(message)).rejects.toThrow(message);
    expect(() => environmentEvaluator({ problems: SUMS, reward: isRight, groups: 2 } as never)).toThrow(
      /^unknown field groups/,
    );
    expect(() => environmentEvaluator({ problems: SUMS, reward: isRight, temperature: -1 })).toThrow(
      /^temperature must be a non-negative number/,
    );
  });
});

/** Groups whose rewards are written down beforehand. */
function differing(
  reward: (place: { readonly index: number; readonly member: number }) => number,
): Overrides {
  const environments: EnvironmentOptions["environments"] = ({ renderer, groupSize }) => ({
    group: (index) => ({
      makeEnvironments: () =>
        Array.from({ length: groupSize }, (_, member) => ({
          start: async () => ({
            prompt: renderer.buildPrompt([{ role: "user", content: sum(index).prompt }]),
            stop: renderer.stopSequences,
          }),
          step: async () => ({ reward: reward({ index, member }), isDone: true }),
        })),
    }),
  });
  return { environments, problems: undefined, reward: undefined };
}

/** Rewards every other answer. */
function alternating<P extends Problem>(): (answer: { problem: P }) => number {
  let count = 0;
  return () => {
    count += 1;
    return count % 2;
  };
}
