import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  bothWays,
  type Comparison,
  comparisons,
  conversations,
  messageEnvironment,
  planDpo,
  planPreferenceModel,
  planRlhf,
  preferenceModel,
  runRolloutGroup,
  type TrainDpoOptions,
  tournament,
  tournamentRewards,
  trainDpo,
  trainPreferenceModel,
  trainRlhf,
  winRateEvaluator,
} from "../../src/cookbook/index.js";
import { matchups } from "../../src/cookbook/preferences/index.js";
import type { Policy } from "../../src/cookbook/rollouts/index.js";
import { getRenderer, type Renderer, textOf } from "../../src/renderers/index.js";
import { longTest } from "../support/long.js";
import { atStep, expectSameMetrics, lines, weightsAt } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const MODEL = "tinkerts/nano";

const place = await TrainingBackend.forTests("preferences");
const { home } = place;
const renderer: Renderer = getRenderer("qwen3_instruct", await place.service.getTokenizer(MODEL));

const user = (content: string) => ({ role: "user", content });
const assistant = (content: string) => ({ role: "assistant", content });

/** Sums with a carry: the right answer, and the one without it, which nano likes better. */
const sums = Array.from({ length: 400 }, (_, index) => {
  const [a, b] = [(index * 37) % 100, (index * 53 + 8) % 100];
  const withoutCarry = 10 * (Math.floor(a / 10) + Math.floor(b / 10)) + ((a + b) % 10);
  return { prompt: `What is ${a} + ${b}?`, chosen: `${a + b}`, rejected: `${withoutCarry}` };
}).filter(({ chosen, rejected }) => chosen !== rejected);

const train = (options: Partial<TrainDpoOptions> = {}) =>
  trainDpo({
    service: place.service,
    model: MODEL,
    data: comparisons(sums.slice(0, 44)),
    testSize: 12,
    batchSize: 8,
    epochs: 2,
    rank: 8,
    evaluateEvery: 4,
    save: { everySteps: 3 },
    loggers: [],
    ...options,
  });

/** Whether the server still has a checkpoint. */
async function isKept(path: string): Promise<boolean> {
  const [run, ...id] = path.slice("tinker://".length).split("/");
  const { items } = await place.service.createRestClient().listCheckpoints(run!);
  return items.some(({ checkpointId }) => checkpointId === id.join("/"));
}

describe("trainDpo", () => {
  longTest("teaches nano the carry, with upstream's metrics, and measures held-out pairs", async () => {
    const folder = join(home, "dpo");
    const run = await train({ folder, epochs: 3 });
    expect(run).toMatchObject({ isFinished: true, steps: 12 });
    const metrics = await lines(folder, "metrics.jsonl");
    const first = metrics[0]!;
    for (const name of ["epoch", "progress", "learning_rate", "num_tokens", "num_pairs"])
      expect(first).toHaveProperty([name]);
    for (const name of ["dpo_loss", "accuracy", "margin", "chosen_reward", "rejected_reward"]) {
      expect(first).toHaveProperty([name]);
      expect(first).toHaveProperty([`test/${name}`]);
    }
    // At the start the model is its own reference.
    expect(first["dpo_loss"]).toBeCloseTo(Math.LN2, 6);
    expect(first["test/dpo_loss"]).toBeCloseTo(Math.LN2, 6);
    expect(first["num_pairs"]).toBe(8);
    const last = metrics.at(-1)!;
    expect(last["step"]).toBe(12);
    expect(last["test/dpo_loss"]).toBeLessThan(0.68);
    expect(last["test/accuracy"]).toBeGreaterThan(0.8);
    expect(last["test/margin"]).toBeGreaterThan(0);
    expect(run.metrics["test/accuracy"]).toBe(last["test/accuracy"]);
  });

  longTest(
    "goes on with the reference that it began with, paused or cut off from its server, to the same weights",
    async () => {
      const whole = await train({ folder: join(home, "whole") });
      const folder = join(home, "disturbed");
      const pause = new AbortController();
      const loggers = [atStep(1, () => pause.abort())];
      const paused = await train({ folder, pauseSignal: pause.signal, loggers });
      expect(paused.isFinished).toBe(false);
      expect(paused.steps).toBeLessThan(6);
      const checkpoint = (await lines(folder, "checkpoints.jsonl")).at(-1)!;
      const { referencePath } = checkpoint["loop_state"] as { referencePath: string };
      expect(await isKept(referencePath)).toBe(true);

      let restarted: Promise<void> | undefined;
      const breaking = atStep(6, () => {
        restarted = place.restart();
      });
      const resumed = await train({ folder, loggers: [breaking] });
      await restarted;
      await place.renewService();
      expect(resumed).toMatchObject({ isFinished: true, steps: 8 });
      expect(resumed.restores).toBeGreaterThan(0);
      expect(await weightsAt(place.backend, resumed.statePath)).toEqual(
        await weightsAt(place.backend, whole.statePath),
      );
      const metricsIn = (run: string) => lines(run, "metrics.jsonl");
      expectSameMetrics(await metricsIn(folder), await metricsIn(join(home, "whole")), { evenly: false });
      // It is of no use any more.
      expect(await isKept(referencePath)).toBe(false);
    },
  );

  it("starts from weights, which are the reference then", async () => {
    const before = await train({ maxSteps: 2, testSize: 0 });
    const notes: Record<string, unknown>[] = [];
    const after = await train({
      startFrom: before.statePath,
      maxSteps: 1,
      loggers: [{ config: () => {}, metrics: (line) => void notes.push(line), close: () => {} }],
    });
    expect(after.steps).toBe(1);
    expect(notes[0]!["test/dpo_loss"]).toBeCloseTo(Math.LN2, 6);
    expect(notes.at(-1)!["test/dpo_loss"]).not.toBeCloseTo(Math.LN2, 6);
  });

  it("trains on ties as ties, and leaves out equal answers", async () => {
    const rows = [
      { prompt: "1+1?", completion_a: "2", completion_b: "two", label: "Tie" },
      { prompt: "1+1?", completion_a: "3", completion_b: "2", label: "B" },
      { prompt: "1+1?", completion_a: "2", completion_b: "2", label: "A" },
    ];
    const plan = await planDpo({ service: place.service, model: MODEL, data: comparisons(rows) });
    expect(plan.description).toMatch(
      /renderer +qwen3_instruct, learning which answer is better, with beta 0\.1/,
    );
    expect(plan.description).toMatch(/rows +2 to learn from, none held out/);
    expect(plan.description).toMatch(/rate +0\.0002, linear \(found by trying for tinkerts\/nano\)/);
    expect(plan.description).toMatch(/note +1 row left out: no two different answers \(first: row 3\)/);
    expect(plan.config).toMatchObject({ dpo_beta: 0.1, label_smoothing: 0, rows: 2 });
    const { metrics } = await train({ data: comparisons(rows), testSize: 0, epochs: 1 });
    expect(metrics).toMatchObject({ num_pairs: 2, num_ties: 1 });
  });

  it("refuses what no run could be made of, with its field", async () => {
    await expect(train({ beta: 0 })).rejects.toThrow("beta must be a number above 0, got 0");
    await expect(train({ labelSmoothing: 1 })).rejects.toThrow("labelSmoothing must be a number from 0 to");
    await expect(train({ data: sums as never })).rejects.toThrow("data must be comparisons, as comparisons(");
    await expect(train({ bta: 1 } as never)).rejects.toThrow("unknown field bta; did you mean beta?");
    await expect(train({ data: comparisons([{ prompt: "a", chosen: "b" }]), testSize: 0 })).rejects.toThrow(
      "row 1: rejected is missing",
    );
  });
});

const yesOrNo = ["tea", "milk", "rain", "snow"].map((word) => ({
  prompt: `${word}?`,
  chosen: "yes",
  rejected: "no",
}));

describe("a preference model", () => {
  longTest("learns the label, and judges answers that it has not seen", async () => {
    const run = await trainPreferenceModel({
      service: place.service,
      model: MODEL,
      data: comparisons(yesOrNo),
      testData: comparisons(yesOrNo.slice(0, 2)),
      epochs: 30,
      schedule: "constant",
      evaluateEvery: 30,
      loggers: [],
    });
    expect(run.metrics["test/accuracy"]).toBe(1);
    expect(run.metrics["test/nll"]).toBeLessThan(0.2);
    const sampler = await place.service.createSamplingClient({ modelPath: run.samplerPath });
    const [yes, no] = [[assistant("yes")], [assistant("no")]];
    const comparison = { prompt: [user("sun?")], completionA: yes, completionB: no };
    const turned = { prompt: [user("sun?")], completionA: no, completionB: yes };
    const [soft, greedy] = [preferenceModel(sampler), preferenceModel(sampler, { scoring: "greedy" })];
    expect(await soft(comparison)).toBeLessThan(-0.5);
    expect(await soft(turned)).toBeGreaterThan(0.5);
    expect([await greedy(comparison), await greedy(turned)]).toEqual([-1, 1]);
    const both = await bothWays(soft)(comparison);
    expect(both).toBeCloseTo(((await soft(comparison)) - (await soft(turned))) / 2, 6);
    // A model that was not trained for it says something else altogether.
    const base = await place.service.createSamplingClient({ baseModel: MODEL });
    expect(await preferenceModel(base, { scoring: "greedy" })(comparison)).toBe(0);
    expect(Math.abs(Number(await preferenceModel(base)(comparison)))).toBeLessThan(1);
    expect(() => preferenceModel(base, { scoring: "best" as never })).toThrow(
      'scoring must be "probability" or "greedy", got "best"',
    );
  });

  it("leaves out comparisons whose label does not fit any more", async () => {
    const rows = [...yesOrNo, { prompt: "long?", chosen: "yes ".repeat(300), rejected: "no" }];
    const options = { service: place.service, model: MODEL, data: comparisons(rows) };
    const plan = await planPreferenceModel(options);
    expect(plan.description).toMatch(/note +1 row left out: no answer within 512 tokens \(first: row 5\)/);
    await expect(planPreferenceModel({ ...options, maxLength: 20 })).rejects.toThrow(
      "maxLength is 20, and no row has an answer within that many tokens",
    );
  });
});

/** Answers with these texts, one after the other. */
const scripted = (texts: readonly string[]): Policy => {
  const rest = texts.values();
  return {
    act: async () => {
      const text = rest.next().value!;
      const stop = text.endsWith("…") ? [] : [renderer.stopSequences[0] as number];
      const tokens = Int32Array.of(...renderer.tokenizer.encode(text), ...stop);
      return { tokens, logprobs: new Float32Array(tokens.length), stopReason: "stop" };
    },
  };
};

const shorter = ({ completionA, completionB }: Comparison) =>
  Math.sign(textOf(completionA[0]!).length - textOf(completionB[0]!).length);

describe("a tournament", () => {
  const groups = (compare: typeof shorter, options: object = {}) =>
    tournament({ prompts: [{ prompt: "Say it." }], compare, groupSize: 5, renderer, ...options });

  it("rewards answers by how they do against each other, and takes 1 off for a wrong end", async () => {
    const group = (await groups(shorter).group(0))!;
    const policy = scripted(["a", "bbb", "cc", "dddd…", "eeeee"]);
    const { trajectories, groupRewards, metrics, tags } = (await runRolloutGroup(group, policy))!;
    // Four play each other both ways, and the fifth is alone.
    expect(groupRewards).toEqual([1, -1 / 3, 1 / 3, -1, 0]);
    expect(metrics.map((each) => each["win_minus_loss"])).toEqual([...groupRewards]);
    expect(trajectories.map(({ turns }) => turns[0]!.reward)).toEqual([0, 0, 0, -1, 0]);
    expect(trajectories.map(({ turns }) => turns[0]!.metrics["format"])).toEqual([1, 1, 1, 0, 1]);
    expect(tags).toEqual(["pair_pref"]);
  });

  it("compares many at a time, but no more than it may, to the same sums in whatever order they come", async () => {
    let [running, most, calls] = [0, 0, 0];
    const slow = async (comparison: Comparison) => {
      calls += 1;
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
      running -= 1;
      return shorter(comparison) * 0.1;
    };
    const texts = ["a", "bbb", "cc", "dddd", "eeeee"];
    const rewards = async () => {
      const group = (await groups(slow as never, { matchupSize: 5, concurrency: 6 }).group(0))!;
      return (await runRolloutGroup(group, scripted(texts)))!.groupRewards;
    };
    const first = await rewards();
    expect(await rewards()).toEqual(first);
    expect([most, calls]).toEqual([6, 40]);
  });

  it("shows the comparison what was given and what was sampled apart", async () => {
    const seen: Comparison[] = [];
    const group = (await tournament({
      prompts: [{ messages: [user("Hi"), assistant("Hello"), user("Bye")] }],
      compare: (comparison) => seen.push(comparison) * 0,
      groupSize: 2,
      pattern: "all_pairs_one_way",
      prepare: (message) => ({ ...message, content: textOf(message).toUpperCase() }),
      renderer,
    }).group(0))!;
    await runRolloutGroup(group, scripted(["so", "long"]));
    expect(seen).toEqual([
      {
        prompt: [user("Hi"), assistant("Hello"), user("Bye")],
        completionA: [assistant("SO")],
        completionB: [assistant("LONG")],
      },
    ]);
  });

  it("leaves out an episode whose prompt was too long, also where the prompt holds an answer", async () => {
    const given = [user("Hi"), assistant("Hello"), user("Bye")];
    const talk = (maxContextTokens?: number) =>
      messageEnvironment({
        environment: { start: () => given, step: () => ({ reward: 0, isDone: true }) },
        renderer,
        maxContextTokens,
      });
    const seen: Comparison[] = [];
    const compare = (comparison: Comparison) => {
      seen.push(comparison);
      return shorter(comparison);
    };
    const group = {
      makeEnvironments: () => [talk(), talk(2), talk()],
      groupRewards: tournamentRewards({ compare, pattern: "all_pairs_one_way" }),
    };
    const { groupRewards } = await runRolloutGroup(group, scripted(["so", "long"]));
    expect(groupRewards).toEqual([1, 0, -1]);
    expect(seen).toEqual([
      { prompt: given, completionA: [assistant("so")], completionB: [assistant("long")] },
    ]);
  });

  it("says what is wrong with its rules, or with a comparison", async () => {
    expect(() => groups("x" as never)).toThrow("compare must be a function");
    expect(() => groups(shorter, { groupSize: 1 })).toThrow("groupSize must be an integer of 2 or more");
    expect(() => groups(shorter, { pattern: "knockout" })).toThrow(
      'pattern must be "all_pairs_both_ways" or',
    );
    expect(() => groups(shorter, { matchupSize: 1 })).toThrow("matchupSize must be an integer of 2 or more");
    const group = (await groups(() => Number.NaN).group(0))!;
    await expect(runRolloutGroup(group, scripted(["a", "b", "c", "d", "e"]))).rejects.toThrow(
      "compare must be a function that gives a number, got NaN",
    );
    const turn = (await runRolloutGroup(
      (await groups(shorter).group(0))!,
      scripted(["a", "b", "c", "d", "e"]),
    ))!;
    const silentEpisodes = turn.trajectories.map(({ messages: _, ...trajectory }) => trajectory);
    const context = { environments: [], signal: new AbortController().signal };
    await expect(tournamentRewards({ compare: shorter })(silentEpisodes, context)).rejects.toThrow(
      "needs environments with the method messages",
    );
    expect(matchups(3, "all_pairs_one_way", 2)).toEqual([[0, 1]]);
  });
});

describe("the win rate", () => {
  it("is that of new answers against given ones, both ways round", async () => {
    const given = [
      {
        prompt: [user("What is 2 + 2?")],
        completionA: [assistant("a very long answer to a short question")],
      },
      { prompt: [user("What is 3 + 2?")], completionA: [assistant("")] },
    ];
    const sampler = await place.service.createSamplingClient({ baseModel: MODEL });
    const evaluator = winRateEvaluator({ compare: shorter, comparisons: given, maxTokens: 4 });
    const metrics = await evaluator.evaluate({ sampler, training: undefined as never, step: 0 });
    expect(metrics).toEqual({ win_rate: 0.5, stderr: 0.5 });
    expect(() => winRateEvaluator({ compare: shorter, comparisons: [] })).toThrow(
      "comparisons must be a list of at least 1 entry, got 0",
    );
    expect(() => winRateEvaluator({ compare: 1 as never, comparisons: given })).toThrow(
      "compare must be a function of a comparison, got 1",
    );
  });
});

describe("trainRlhf", () => {
  longTest("goes through its stages, each in its folder, and goes on where it was paused", async () => {
    const folder = join(home, "rlhf");
    const pause = new AbortController();
    const started: string[] = [];
    const logger = (stage: string, act = () => {}) => [
      {
        config: () => void started.push(stage),
        metrics: () => act(),
        close: () => {},
      },
    ];
    const run = (pauseSignal?: AbortSignal) =>
      trainRlhf({
        service: place.service,
        model: MODEL,
        folder,
        rank: 4,
        pauseSignal,
        supervised: {
          data: conversations(yesOrNo.map(({ prompt, chosen }) => ({ prompt, completion: chosen }))),
          maxSteps: 1,
          loggers: logger("sft"),
        },
        preferences: {
          data: comparisons([...yesOrNo, ...yesOrNo]),
          testSize: 2,
          epochs: 2,
          batchSize: 3,
          loggers: logger("rm", () => pause.abort()),
        },
        reinforcement: {
          groupSize: 3,
          groupsPerBatch: 2,
          steps: 1,
          maxTokens: 4,
          kl: { coefficient: 0.01 },
          loggers: logger("rl"),
        },
      });
    const paused = await run(pause.signal);
    expect(paused).toMatchObject({ isFinished: false, supervised: { isFinished: true } });
    expect(paused.preferences?.isFinished).toBe(false);
    expect(paused.reinforcement).toBeUndefined();
    const done = await run();
    expect(done.isFinished).toBe(true);
    expect(done.supervised.samplerPath).toBe(paused.supervised.samplerPath);
    expect(started).toEqual(["sft", "rm", "sft", "rm", "rl"]);
    expect((await readdir(folder)).sort()).toEqual(["rl", "rm", "sft"]);
    expect(done.reinforcement!.metrics).toMatchObject({ win_rate: expect.any(Number) });
    expect(done.reinforcement!.metrics).toHaveProperty(["env/all/win_minus_loss"]);
    expect(done.reinforcement!.metrics).toHaveProperty(["kl_policy_base"]);
    const config = JSON.parse(await readFile(join(folder, "rl", "config.json"), "utf8"));
    expect(config).toMatchObject({ load_checkpoint_path: done.supervised.statePath });
  });

  it("plans its stages with exact counts, and trains nothing", async () => {
    const folder = join(home, "rlhf-planned");
    const { config, description } = await planRlhf({
      service: place.service,
      model: MODEL,
      folder,
      supervised: { data: conversations([{ prompt: "a", completion: "b" }]), epochs: 3, batchSize: 1 },
      preferences: { data: comparisons([...yesOrNo, ...yesOrNo]), testSize: 2 },
      reinforcement: { groupsPerBatch: 2, steps: 5, maxTokens: 4, kl: { coefficient: 0.01 } },
    });
    expect(config).toMatchObject({
      sft: { rows: 1, steps: 3, model_name: MODEL },
      rm: { rows: 2 * yesOrNo.length - 2, test_rows: 2 },
      rl: { steps: 5, episodes: 5 * 2 * 4, kl_reference: "the weights of the first stage" },
    });
    expect(description).toMatch(
      /^sft\nmodel .*\n\nrm\nmodel .*\n\nrl\nmodel .*to the weights of the first stage/s,
    );
    expect(await readdir(home)).not.toContain("rlhf-planned");
  });

  it("refuses what it does not know, before anything is trained", async () => {
    await expect(
      trainRlhf({
        service: place.service,
        model: MODEL,
        folder: "",
        supervised: {},
        preferences: {},
      } as never),
    ).rejects.toThrow("folder must be a non-empty string");
    await expect(
      trainRlhf({ service: place.service, model: MODEL, folder: "x", sft: {} } as never),
    ).rejects.toThrow("unknown field sft");
  });

  it("knows what is wrong with a later stage before it trains the first", async () => {
    const folder = join(home, "rlhf-refused");
    const data = comparisons(yesOrNo);
    const supervised = { data: conversations([{ prompt: "a", completion: "b" }]), loggers: [] };
    const refused: [object, string][] = [
      [{ supervised: { ...supervised, batchSize: 0 } }, "supervised: batchSize must be a positive integer"],
      [{ preferences: { data: 3 } }, "preferences: data must be comparisons"],
      [{ preferences: { data, scoring: "best" } }, 'preferences: scoring must be "probability" or "greedy"'],
      [{ reinforcement: { patern: 3 } }, "reinforcement: unknown field patern"],
      [{ reinforcement: { pattern: "knockout" } }, 'reinforcement: pattern must be "all_pairs_both_ways" or'],
      [
        { reinforcement: { groupSize: 1 } },
        "reinforcement: groupSize must be an integer of 2 or more, got 1",
      ],
    ];
    for (const [options, message] of refused) {
      const run = trainRlhf({
        service: place.service,
        model: MODEL,
        folder,
        supervised,
        preferences: { data },
        ...options,
      });
      await expect(run).rejects.toThrow(message);
    }
    expect(await readdir(home)).not.toContain("rlhf-refused");
  });
});
