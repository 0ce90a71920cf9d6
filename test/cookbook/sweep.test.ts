import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { pigLatin, trainingWords } from "../../src/cli/quickstart/words.js";
import {
  conversations,
  type FinishedRun,
  type SweepOptions,
  sweep,
  type TrainSupervisedOptions,
  trainSupervised,
} from "../../src/cookbook/index.js";
import type { SweepRecord } from "../../src/cookbook/sweeps/index.js";
import { readSweep } from "../../src/dashboard/runs/run-facts.js";
import { atStep, expectSameMetrics, lines, untimed } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const place = await TrainingBackend.forTests("sweep");
const { service, home } = place;

const data = conversations(
  trainingWords.slice(0, 24).map((word) => ({ prompt: `Pig Latin: ${word}`, completion: pigLatin(word) })),
);
const options = {
  service,
  model: "tinkerts/nano",
  data,
  testSize: 4,
  batchSize: 5,
  rank: 4,
  evaluateEvery: 2,
};
const record = async (folder: string): Promise<SweepRecord> =>
  JSON.parse(await readFile(join(home, folder, "sweep.json"), "utf8"));
const metricsOf = (...path: string[]) => lines(join(home, ...path), "metrics.jsonl");
/** Without the tokens of evaluations, which are sampled while later steps are trained. */
const trainedIn = async (...path: string[]) =>
  untimed(await metricsOf(...path)).map((line) =>
    Object.fromEntries(
      Object.entries(line).filter(([name]) => !/^tokens\/(?:cached_)?prefill$|^tokens\/sample$/.test(name)),
    ),
  );

/** A sweep whose runs only say how they ended. */
function pretended(
  folder: string,
  outcome: (options: TrainSupervisedOptions) => Partial<FinishedRun> | Promise<Partial<FinishedRun>>,
  more: Partial<SweepOptions<TrainSupervisedOptions>> = {},
) {
  return sweep<TrainSupervisedOptions>({
    train: async (given) =>
      ({
        isFinished: true,
        metrics: {},
        steps: 1,
        samplerPath: "s",
        statePath: "t",
        ...(await outcome(given)),
      }) as FinishedRun,
    folder: join(home, folder),
    grid: { learningRate: [1e-3, 2e-3], rank: [4, 8] },
    ...more,
  });
}

describe("a sweep", () => {
  it("trains each setting in a folder of its own, and finds the best", async () => {
    const seen: string[] = [];
    const result = await sweep({
      train: trainSupervised,
      options,
      grid: { learningRate: [1e-6, 2e-3] },
      folder: join(home, "rates"),
      atOnce: 2,
      onChange: ({ folder, status }) => seen.push(`${folder} ${status}`),
    });
    const [low, high] = result.runs;
    expect(result).toMatchObject({
      name: "rates",
      metric: "test/nll",
      direction: "min",
      recommendedLearningRate: 2e-3,
      isFinished: true,
      best: high,
    });
    expect(low!.value).toBeGreaterThan(high!.value!);
    expect(seen.sort()).toEqual(
      ["001-learning-rate-0.000001", "002-learning-rate-0.002"].flatMap((name) => [
        `${name} finished`,
        `${name} running`,
      ]),
    );
    expect((await readdir(join(home, "rates"))).sort()).toEqual([low!.folder, high!.folder, "sweep.json"]);
    const { isFinished: _, best: __, ...kept } = result;
    expect(await record("rates")).toEqual(kept);
    // The page reads it too.
    const shown = await readSweep(join(home, "rates/sweep.json"));
    expect(shown).toMatchObject({ name: "rates", metric: "test/nll", isLowerBetter: true });
    expect(shown.settings.get(high!.folder)).toEqual({ learningRate: 2e-3 });
    const config = JSON.parse(await readFile(join(home, "rates", high!.folder, "config.json"), "utf8"));
    expect(config.learning_rate).toBe(2e-3);
    // A run of a sweep is the run that the same options are by themselves.
    await trainSupervised({ ...options, learningRate: 2e-3, folder: join(home, "alone"), loggers: [] });
    expect(await trainedIn("alone")).toEqual(await trainedIn("rates", high!.folder));

    // More values: those that are there keep their folders, and are not trained again.
    const before = await metricsOf("rates", high!.folder);
    const longer = await sweep({
      train: trainSupervised,
      options,
      grid: { learningRate: [2e-3, 4e-3] },
      folder: join(home, "rates"),
    });
    expect(longer.runs.map(({ folder }) => folder)).toEqual([
      high!.folder,
      "003-learning-rate-0.004",
      low!.folder,
    ]);
    expect(longer.isFinished).toBe(true);
    expect(await metricsOf("rates", high!.folder)).toEqual(before);
  });

  it("pauses with a checkpoint, and goes on to the same numbers", async () => {
    const pause = new AbortController();
    const plan = {
      train: trainSupervised,
      options: { ...options, epochs: 3, save: { everySteps: 2 } },
      grid: { rank: [2, 4] },
    };
    const paused = await sweep({
      ...plan,
      folder: join(home, "paused"),
      pauseSignal: pause.signal,
      loggers: () => [atStep(3, () => pause.abort())],
    });
    expect(paused.isFinished).toBe(false);
    expect(paused.runs.map(({ status }) => status)).toEqual(["paused", "waiting"]);
    const resumed = await sweep({ ...plan, folder: join(home, "paused") });
    const whole = await sweep({ ...plan, folder: join(home, "whole") });
    expect(resumed.isFinished).toBe(true);
    expect(resumed.runs.map(({ value }) => value)).toEqual(whole.runs.map(({ value }) => value));
    for (const { folder } of whole.runs)
      expectSameMetrics(await metricsOf("paused", folder), await metricsOf("whole", folder), {
        evenly: false,
      });
  });

  it("does not lose the others when one fails, and tries that again", async () => {
    let attempts = 0;
    const failing = () =>
      pretended("failing", ({ learningRate = 0, rank = 0 }) => {
        attempts += 1;
        if (learningRate === 2e-3 && rank === 4 && attempts < 5) throw new Error("the GPU is gone");
        return { metrics: { "test/nll": learningRate * rank } };
      });
    const first = await failing();
    expect(first.runs.map(({ status }) => status)).toEqual(["finished", "finished", "failed", "finished"]);
    expect(first.runs[2]).toMatchObject({
      settings: { learningRate: 2e-3, rank: 4 },
      error: "the GPU is gone",
    });
    expect(first).toMatchObject({ isFinished: false, best: { value: 0.004 } });
    expect((await failing()).isFinished).toBe(true);
  });

  it("goes on where a killed one left runs that seem to run", async () => {
    await pretended("killed", () => ({ metrics: { "test/nll": 1 } }));
    const left = await record("killed");
    const runs = left.runs.map((run, index) => ({ ...run, status: index === 1 ? "running" : "waiting" }));
    await writeFile(join(home, "killed/sweep.json"), JSON.stringify({ ...left, runs }));
    const order: unknown[] = [];
    const again = await pretended("killed", ({ folder }) => {
      order.push(folder);
      return { metrics: { "test/nll": 1 } };
    });
    expect(again.isFinished).toBe(true);
    expect(order).toEqual(left.runs.map(({ folder }) => join(home, "killed", folder)));
  });

  it("compares by the metric and direction that are named", async () => {
    const rewards = await pretended(
      "rewards",
      ({ rank = 0 }) => ({ metrics: { "env/all/reward/total": rank } }),
      {
        metric: "env/all/reward/total",
        grid: { rank: [4, 16, 8] },
      },
    );
    expect(rewards).toMatchObject({ direction: "max", best: { settings: { rank: 16 } } });
    const lowest = await pretended(
      "rewards",
      ({ rank = 0 }) => ({ metrics: { "env/all/reward/total": rank } }),
      {
        metric: "env/all/reward/total",
        direction: "min",
        grid: { rank: [4, 16, 8] },
      },
    );
    expect(lowest.best?.settings).toEqual({ rank: 4 });
    const kept = await pretended(
      "kept",
      ({ rank = 0 }) => ({
        metrics: { "test/nll": 5 },
        best: { batch: 3, samplerPath: "best", metric: "test/nll", value: rank },
      }),
      { list: [{ rank: 4 }, { rank: 8, learningRate: 1e-4 }], grid: undefined },
    );
    expect(kept.best).toMatchObject({ value: 4, samplerPath: "best", folder: "001-rank-4" });
    const stopped = await pretended(
      "stopped",
      () => ({
        isFinished: false,
        paused: { by: "budget", reason: "the budget of $5 is used up" },
        metrics: { "test/nll": 1, "cost/usd": 4.5 },
      }),
      { grid: { rank: [4] } },
    );
    expect(stopped).toMatchObject({
      isFinished: false,
      runs: [{ status: "paused", costUsd: 4.5, error: "the budget of $5 is used up" }],
    });
    const unmeasured = await pretended("unmeasured", () => ({ metrics: { train_mean_nll: 1 } }), {
      grid: { rank: [1] },
    });
    expect(unmeasured.best).toBeUndefined();
    expect(unmeasured.runs[0]).toMatchObject({ error: "it has no metric test/nll, only train_mean_nll" });
  });

  it("trains no more runs at once than it may", async () => {
    let running = 0;
    let most = 0;
    await pretended(
      "at-once",
      async () => {
        running += 1;
        most = Math.max(most, running);
        await vi.waitFor(() => expect(most).toBeGreaterThan(2));
        running -= 1;
        return {};
      },
      { atOnce: 3, grid: { rank: [1, 2, 3, 4, 5, 6, 7] } },
    );
    expect(most).toBe(3);
  });

  it.each([
    [{ grid: undefined }, /^grid is missing, and so is list/],
    [{ grid: { rank: [] } }, /^grid\.rank must be a list of values to try, got a list of 0/],
    [{ grid: { rank: 8 } }, /^grid\.rank must be a list of values to try, got 8/],
    [{ grid: { rank: [8, 8] } }, /^list has the same settings twice: \{"rank":8\}/],
    [
      { grid: { rank: Array.from({ length: 40 }, (_, index) => index), seed: Array(40).fill(1) } },
      /more than 1000 runs/,
    ],
    [{ grid: { evaluators: [[() => {}]] } }, /^grid\.evaluators\[0\] must be JSON/],
    [{ grid: { folder: ["a"] } }, /^grid\.folder\[0\] cannot differ between the runs of a sweep/],
    [{ list: [], grid: undefined }, /^list is empty/],
    [{ list: [3] }, /^list\[0\] must be an object, got 3/],
    [{ options: { folder: "x" } }, /^options\.folder is an option of sweep itself/],
    [{ atOnce: 0 }, /^atOnce must be an integer from 1 to 64, got 0/],
    [{ direction: "up" }, /^direction must be "min" or "max", got "up"/],
  ])("refuses %j", async (more, message) => {
    await expect(pretended("refused", () => ({}), more as never)).rejects.toThrow(message);
  });

  it("refuses a damaged sweep.json, and a folder that is in use", async () => {
    const refused = () => pretended("damaged", () => ({}), { grid: { rank: [1] } });
    await refused();
    await writeFile(join(home, "damaged/sweep.json"), '{"name": "x", "runs": [{"folder": "../../x"}]}');
    await expect(refused()).rejects.toThrow(/sweep\.json cannot be read: metric must be a non-empty string/);
    await writeFile(join(home, "damaged/sweep.json"), '{"name": "x"');
    await expect(refused()).rejects.toThrow(/sweep\.json cannot be read: .*JSON/);
    const nested = pretended("used", () => pretended("used", () => ({})).then(() => ({})), {
      grid: { rank: [1] },
    });
    expect((await nested).runs[0]!.error).toMatch(/^The folder of a sweep .*used is in use by this process/);
  });
});
