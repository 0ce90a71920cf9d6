import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { type ReinforcementMode, trainReinforcement } from "../../src/cookbook/reinforcement/index.js";
import { derivedSeed } from "../../src/cookbook/rollouts/index.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/default-model.js";
import { lines, weightsAt } from "../cookbook/run-files.js";
import { silent } from "../local/raw-client.js";
import { dashboardOf } from "./dashboard-of.js";
import { explainSkip, hasPythonModule, lastLine, runPython } from "./judge.js";
import { type Recorder, startRecorder } from "./recorder.js";
import { writeReport } from "./report.js";

explainSkip("reinforcement-run.test.ts");

const STEPS = 3;
const RANK = 8;
const SHARED = {
  renderer: "qwen3_instruct",
  learningRate: 1e-3,
  maxTokens: 6,
  groupsPerBatch: 4,
  groupSize: 4,
  loss: "importance_sampling",
} as const;

/** Sums that nano sometimes gets right: in each batch there is a group that differs. */
const problems = Array.from({ length: SHARED.groupsPerBatch * STEPS }, (_, index) => {
  const [a, b] = [30 + ((index * 7) % 30), 20 + ((index * 4) % 40)];
  return { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
});
/** Of the one turn of each episode. */
const seeds = problems.map((_, group) =>
  Array.from({ length: SHARED.groupSize }, (_each, member) =>
    derivedSeed(derivedSeed(derivedSeed(0, group), member, 0), 0),
  ),
);

interface Settings {
  readonly mode: ReinforcementMode;
  readonly substeps: number;
  readonly minibatches: number;
}
interface Outcome {
  readonly metrics: readonly Readonly<Record<string, number>>[];
  /** What was asked of the server, in order. */
  readonly calls: readonly string[];
  readonly weights: Readonly<Record<string, string>>;
  readonly seconds: number;
}

/** Runs on a server of its own that writes down what is asked of it, from weights that are the same everywhere. */
async function onFreshServer(
  run: (server: {
    readonly recorder: Recorder;
    readonly service: ServiceClient;
    readonly startFrom: string;
    readonly home: string;
  }) => Promise<Pick<Outcome, "metrics" | "seconds"> & { readonly statePath: string }>,
): Promise<Outcome> {
  const home = await mkdtemp(join(tmpdir(), "tinkerts-same-rewards-"));
  try {
    await using recorder = await startRecorder({ dataDir: join(home, "data"), logger: silent });
    const { apiKey } = recorder.backend;
    await using service = new ServiceClient({ baseURL: recorder.baseURL, apiKey, logLevel: "off" });
    const start = { baseModel: defaultModel.name, rank: RANK, seed: 3 };
    const { path } = await (await service.createLoraTrainingClient(start)).saveState("start");
    recorder.requests.length = 0;
    const { statePath, ...outcome } = await run({ recorder, service, startFrom: path, home });
    return { ...outcome, calls: callsOf(recorder), weights: await weightsAt(recorder.backend, statePath) };
  } finally {
    await rm(home, { recursive: true });
  }
}

const ours = (settings: Settings) =>
  onFreshServer(async ({ service, startFrom, home }) => {
    const startedMs = performance.now();
    const folder = join(home, "run");
    const { statePath } = await trainReinforcement({
      ...SHARED,
      ...settings,
      service,
      model: defaultModel.name,
      problems: (index) => problems[index],
      reward: ({ problem, text }) => (text === problem.answer ? 1 : 0),
      format: () => true,
      tags: ["sums"],
      steps: STEPS,
      startFrom,
      rank: RANK,
      dropConstantGroups: false,
      save: { everySteps: 2 },
      folder,
      loggers: [],
    });
    const metrics = (await lines(folder, "metrics.jsonl")) as Record<string, number>[];
    return { statePath, metrics, seconds: (performance.now() - startedMs) / 1000 };
  });

const theirs = (settings: Settings) =>
  onFreshServer(async ({ recorder, startFrom, home }) => {
    const given = { ...SHARED, ...settings, problems, seeds, startFrom, rank: RANK, saveEvery: 2 };
    const output = await runPython("reinforcement_run.py", {
      baseURL: recorder.baseURL,
      apiKey: recorder.backend.apiKey,
      model: defaultModel.name,
      folder: home,
      env: { SETTINGS: JSON.stringify({ ...given, maxStepsOffPolicy: 1 }) },
    });
    const { checkpoints, ...run } = lastLine<
      Pick<Outcome, "metrics" | "seconds"> & { checkpoints: { batch: number; state_path: string }[] }
    >(output);
    // However many it has trained.
    expect(checkpoints.at(-1)).toMatchObject({ name: "final", batch: STEPS });
    await expectShown(join(home, "run"), settings.mode, run.metrics);
    return { ...run, statePath: checkpoints.at(-1)!.state_path };
  });

/** Their folder opens in the dashboard as it is. */
async function expectShown(
  folder: string,
  mode: ReinforcementMode,
  metrics: Outcome["metrics"],
): Promise<void> {
  const shown = await dashboardOf(folder);
  const reward = "env/all/reward/total";
  expect(shown.run).toMatchObject({ model: defaultModel.name, state: "finished", hasSamples: true });
  expect(shown.run.headline?.name).toBe(reward);
  expect(shown.metrics).toMatchObject({ badLines: 0, hasTimes: true });
  const rewards = metrics.flatMap((line) => line[reward] ?? []);
  expect(shown.metrics.series[reward]?.values).toEqual(rewards);
  expect(shown.steps.map(({ step }) => step)).toEqual([...rewards.keys()]);
  expect(shown.steps[0]!.reports).toEqual(mode === "asynchronous" ? [] : ["train"]);
  const { samples, badLines } = await shown.samples(0);
  expect(badLines).toBe(0);
  expect(samples).toHaveLength(SHARED.groupsPerBatch * SHARED.groupSize);
  const mean = samples.reduce((sum, sample) => sum + sample.reward!, 0) / samples.length;
  expect(mean).toBeCloseTo(rewards[0]!);
  const { turns, tags } = await shown.sample(0, samples[0]!.place);
  expect({ tags, turns: turns.length }).toEqual({ tags: ["sums"], turns: 1 });
  expect(turns[0]).toMatchObject({ reward: samples[0]!.reward });
  // The asynchronous loop writes no reports.
  for (const name of shown.steps[0]!.reports) {
    const text = JSON.stringify(await shown.report(0, name));
    expect(text).toMatch(/What is \d+ \+ \d+\?/);
    expect(text).not.toMatch(/<\w+|&lt;|&#x27;|lt-/);
  }
}

/** What was asked of a model and its samplers; the passes of a batch and samples that follow each other are one call. */
function callsOf({ requests }: Recorder): string[] {
  const names = requests.flatMap(({ path, contentType, body }): string[] => {
    const isJson = contentType.includes("json") && body.length > 0;
    const { path: name } = isJson ? (JSON.parse(Buffer.from(body).toString()) as { path?: string }) : {};
    switch (path) {
      case "/forward_backward":
      case "/optim_step":
      case "/create_sampling_session":
        return [path.slice(1)];
      case "/save_weights":
        return [`state ${name}`];
      case "/save_weights_for_sampler":
        return [name === undefined ? "sampler" : `sampler ${name}`];
      case "/asample":
        return ["sample"];
      default:
        return [];
    }
  });
  return names.filter((each, place) => each !== "sample" || names[place - 1] !== "sample");
}

const repeated = (times: number, ...calls: string[]) => Array.from({ length: times }, () => calls).flat();
const trainingOf = ({ calls }: Outcome) => calls.filter((call) => call !== "sample");

/**
 * Where the calls differ: ours saves its first weights, to go back to if the server fails before the next checkpoint; it
 * samples from weights that are saved for that alone, and need not wait for a checkpoint; and it saves none for a step that
 * will not be.
 */
const callsOfBoth = (step: string[], sample: string[]) => {
  const trained = [...sample, ...step];
  const checkpoint = ["state 000002", "sampler 000002"];
  const final = ["state final", "sampler final"];
  return {
    ours: [
      "state 000000",
      ...repeated(2, "sampler", ...trained),
      "sampler",
      ...checkpoint,
      ...trained,
      ...final,
    ],
    theirs: [
      ...repeated(2, "sampler", ...trained),
      ...[...checkpoint, "create_sampling_session", ...trained, "sampler", ...final],
    ],
  };
};

/** Metrics that both have, without times. */
function expectSameMetrics(mine: Outcome, python: Outcome, steps = STEPS): void {
  expect(mine.metrics).toHaveLength(STEPS);
  expect(python.metrics).toHaveLength(STEPS);
  for (const [step, line] of python.metrics.slice(0, steps).entries()) {
    for (const [name, value] of Object.entries(line).filter(([key]) => !key.startsWith("time/"))) {
      // Python adds up in single precision.
      expect(mine.metrics[step]![name], `${name} of step ${step}`).toBeCloseTo(value, 5);
    }
  }
}

const divergences = ({ metrics }: Outcome) => metrics.map((line) => line["optim/kl_sample_train_v1"]);

describe.skipIf(!hasPythonModule("tinker_cookbook", "reinforcement-run.test.ts"))(
  "the same run by reward, from the Python cookbook and from ours",
  () => {
    const seconds: Record<string, { ours: number; theirs: number }> = {};
    afterAll(() => writeReport("reinforcement-runs", { steps: STEPS, seconds }));

    it.each([
      [1, ["forward_backward", "optim_step"]],
      [2, repeated(2, "forward_backward", "optim_step")],
    ])(
      "synchronous, %i updates a step: the same calls, metrics and weights, bit for bit",
      async (substeps, step) => {
        const settings = { mode: "synchronous", substeps, minibatches: 1 } as const;
        const mine = await ours(settings);
        const python = await theirs(settings);
        seconds[`synchronous, ${substeps} updates`] = { ours: mine.seconds, theirs: python.seconds };
        expectSameMetrics(mine, python);
        if (substeps === 1)
          expect([...divergences(mine), ...divergences(python)]).toEqual([0, 0, 0, 0, 0, 0]);
        expect(mine.weights).toEqual(python.weights);
        expect({ ours: mine.calls, theirs: python.calls }).toEqual(callsOfBoth(step, ["sample"]));
      },
    );

    it("streamed: the same passes as the groups come, which Python takes as they come and ours in their order", async () => {
      const settings = { mode: "streamed", substeps: 1, minibatches: 2 } as const;
      const mine = await ours(settings);
      const python = await theirs(settings);
      seconds["streamed"] = { ours: mine.seconds, theirs: python.seconds };
      // Gradients that are added in another order have other last bits, and later samples may be others.
      expectSameMetrics(mine, python, 1);
      expect([...divergences(mine), ...divergences(python)]).toEqual([0, 0, 0, 0, 0, 0]);
      const step = ["forward_backward", "forward_backward", "optim_step"];
      expect({ ours: trainingOf(mine), theirs: trainingOf(python) }).toEqual(callsOfBoth(step, []));
      const whole = await ours({ ...settings, mode: "synchronous", minibatches: 1 });
      expect(mine.weights).toEqual(whole.weights);
    });

    it("asynchronous: ours trains all steps, where Python's may drop the last ones and call them done", async () => {
      const settings = { mode: "asynchronous", substeps: 1, minibatches: 1 } as const;
      const mine = await ours(settings);
      const python = await theirs(settings);
      seconds["asynchronous"] = { ours: mine.seconds, theirs: python.seconds };
      expect(trainingOf(mine)).toEqual(callsOfBoth(["forward_backward", "optim_step"], []).ours);
      expect(mine.metrics.map((line) => line["training_client/step"])).toEqual([0, 1, 2]);
      for (const [step, line] of mine.metrics.entries())
        expect(step - line["sampling_client/step_min"]!).toBeLessThanOrEqual(1);
      expect(python.metrics.length).toBeLessThanOrEqual(STEPS);
      const own = ["progress/batch", "time", "time/train_step"];
      const names = (line: object) =>
        Object.keys(line).filter((name) => !/^(?:time|tokens|cost|sampling|warnings)\//.test(name));
      expect(
        names(mine.metrics[0]!)
          .filter((name) => !own.includes(name))
          .sort(),
      ).toEqual(names(python.metrics[0]!).sort());
    });
  },
);
