import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { downloadCheckpoint } from "../../src/checkpoints/index.js";
import { heldOutWords, pigLatin, trainingWords } from "../../src/cli/quickstart/words.js";
import { chat } from "../../src/cookbook/chat/index.js";
import { conversations } from "../../src/cookbook/data/index.js";
import type { Evaluator } from "../../src/cookbook/evaluation/index.js";
import type { TrainingLogger } from "../../src/cookbook/runs/index.js";
import {
  planSupervised,
  type TrainSupervisedOptions,
  trainSupervised,
} from "../../src/cookbook/supervised/index.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { longTest } from "../support/long.js";
import { atStep, expectSameMetrics, lines, weightsAt } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const question = (word: string) => ({ role: "user", content: `Pig Latin: ${word}` });
const row = (word: string) => ({
  messages: [question(word), { role: "assistant", content: pigLatin(word) }],
});

const place = await TrainingBackend.forTests("supervised");
const { home } = place;

const SMALL = conversations(trainingWords.slice(0, 24).map(row));

/** A run of 12 steps over 24 rows, a few of them held out. */
const train = (options: Partial<TrainSupervisedOptions> = {}) =>
  trainSupervised({
    service: place.service,
    model: "tinkerts/nano",
    data: SMALL,
    testSize: 4,
    batchSize: 5,
    epochs: 3,
    rank: 4,
    evaluateEvery: 5,
    save: { everySteps: 4 },
    loggers: [],
    ...options,
  });

/** The turn of an answer to a held-out prompt, in a log. */
interface AnswerStep {
  readonly ob_tokens: readonly number[];
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly top_logprobs: readonly (readonly (readonly [number, number])[])[];
}

/** A logger that only collects notes. */
const noteLogger = (notes: string[]): TrainingLogger => ({
  config: () => {},
  metrics: () => {},
  note: (text) => void notes.push(text),
  close: () => {},
});

describe("trainSupervised", () => {
  longTest("teaches nano Pig Latin, and says what it does", async () => {
    const said: string[] = [];
    const logger = noteLogger(said);
    const run = await trainSupervised({
      service: place.service,
      model: "tinkerts/nano",
      data: conversations(trainingWords.slice(0, 280).map(row)),
      batchSize: 14,
      epochs: 2,
      evaluateEvery: 20,
      prices: { models: { "tinkerts/nano": { prefill: 1, cachedPrefill: 1, sample: 1, train: 100 } } },
      loggers: [logger],
    });
    expect(said[0]).toMatch(/model +tinkerts\/nano, a LoRA adapter of rank 32/);
    expect(said[0]).toMatch(/renderer +qwen3_instruct, learning all_assistant_messages/);
    expect(said[0]).toMatch(/rows +252 to learn from, 28 held out/);
    expect(said[0]).toMatch(/steps +36: 2 epochs of 18, 14 rows each/);
    expect(said[0]).toMatch(/rate +0\.002, linear \(found by trying for tinkerts\/nano\)/);
    expect(said[0]).toMatch(/in all +1\d\.\dk trained tokens/);
    expect(said[0]).toMatch(/cost +about \$1\.\d\d/);
    expect(said.at(-1)).toMatch(/^Trained 36 steps: loss \d[\d.]* -> 0\.\d+ {2}test\/nll \d[\d.]* -> 0\.\d+/);
    expect(run.metrics["test/nll"]).toBeLessThan(0.5);
    expect(run.metrics["train_mean_nll"]).toBeLessThan(0.3);
    const sampler = await place.service.createSamplingClient({ modelPath: run.samplerPath });
    const words = heldOutWords.slice(0, 20);
    const answers = await Promise.all(
      words.map((word) => chat(sampler, [question(word)], { temperature: 0, maxTokens: 20 })),
    );
    const right = answers.filter(({ text }, index) => text === pigLatin(words[index]!));
    expect(right.length).toBeGreaterThan(8);
  });

  it("writes the Python cookbook's files, and measures before, during and after", async () => {
    const folder = join(home, "files");
    const run = await train({ folder });
    expect(run).toMatchObject({ isFinished: true, steps: 12, restores: 0 });
    const { userMetadata } = await place.service.createRestClient().getTrainingRun(run.samplerPath);
    expect(userMetadata).toMatchObject({ name: "files" });
    const metrics = await lines(folder, "metrics.jsonl");
    expect(metrics.map(({ step }) => step)).toEqual([...Array(13).keys()]);
    for (const line of metrics) expect(line["time"]).toBeGreaterThan(1.7e9);
    const names = Object.keys(metrics[0]!);
    for (const name of [
      "epoch",
      "progress",
      "learning_rate",
      "num_sequences",
      "num_tokens",
      "num_loss_tokens",
    ])
      expect(names).toContain(name);
    for (const name of [
      "train_mean_nll",
      "train_mean_bpb",
      "test/nll",
      "test/bpb",
      "time/step",
      "time/total",
    ])
      expect(names).toContain(name);
    expect(metrics.flatMap((line) => ("test/nll" in line ? [line["step"]] : []))).toEqual([0, 5, 10, 12]);
    expect(metrics.map(({ epoch }) => epoch).slice(0, 12)).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    expect(metrics[3]).toMatchObject({
      num_sequences: 5,
      progress: 4 / 12,
      learning_rate: 0.002 * (1 - 3 / 12),
    });
    // A count of tokens, although each example weighs 1.
    expect(metrics[0]!["num_loss_tokens"]).toBeGreaterThan(15);
    expect(run.metrics["test/nll"]).toBe(metrics[12]!["test/nll"]);
    const checkpoints = await lines(folder, "checkpoints.jsonl");
    expect(checkpoints.map(({ name, epoch, batch }) => [name, epoch, batch])).toEqual([
      ["000000", 0, 0],
      ["000004", 1, 0],
      ["000008", 2, 0],
      ["final", 3, 0],
    ]);
    expect(checkpoints[3]).toMatchObject({
      final: true,
      state_path: run.statePath,
      sampler_path: run.samplerPath,
      elapsed_tokens: metrics.reduce((sum, line) => sum + Number(line["num_tokens"] ?? 0), 0),
    });
    expect(JSON.parse(await readFile(join(folder, "config.json"), "utf8"))).toMatchObject({
      model_name: "tinkerts/nano",
      renderer_name: "qwen3_instruct",
      learning_rate: 0.002,
      lr_schedule: "linear",
      num_epochs: 3,
      lora_rank: 4,
    });
    expect(await readFile(join(folder, "logs.log"), "utf8")).toContain("Trained 12 steps");
    // What was only there to begin with is gone, and what is kept has a time to live.
    const held = await place.service.createRestClient().listCheckpoints(run.statePath.split("/")[2]!);
    const ids = held.items.map(({ checkpointId }) => checkpointId).sort();
    expect(ids).toEqual([
      "sampler_weights/000004",
      "sampler_weights/000008",
      "sampler_weights/final",
      "weights/000004",
      "weights/000008",
      "weights/final",
    ]);

    // The same held-out prompts are answered at each evaluation, by weights that know more and more.
    const answersAt = async (step: number) =>
      (
        await lines(folder, `iteration_${String(step).padStart(6, "0")}/eval_answers_rollout_summaries.jsonl`)
      ).map(({ steps }) => (steps as readonly AnswerStep[])[0]!);
    const [first, last] = [await answersAt(0), await answersAt(12)];
    expect(last.map((answer) => answer.ob_tokens)).toEqual(first.map((answer) => answer.ob_tokens));
    expect(last).toHaveLength(3);
    expect(last.map(({ tokens }) => tokens)).not.toEqual(first.map(({ tokens }) => tokens));
    for (const { tokens, logprobs, top_logprobs } of last) {
      // Without randomness each token is the likeliest one, which stands first.
      expect(top_logprobs.map(([best]) => best?.[0])).toEqual(tokens);
      expect(logprobs).toHaveLength(tokens.length);
    }
    const again = await train({ folder });
    expect(again).toEqual({ ...run, metrics: { ...run.metrics, ...again.metrics } });
    expect(await lines(folder, "metrics.jsonl")).toHaveLength(13);
  });

  longTest("ends bit for bit the same when it was paused, aborted and cut off from its server", async () => {
    const whole = await train({ folder: join(home, "whole") });
    const folder = join(home, "disturbed");
    const pause = new AbortController();
    const paused = await train({
      folder,
      pauseSignal: pause.signal,
      loggers: [atStep(1, () => pause.abort())],
    });
    expect(paused.isFinished).toBe(false);
    expect(paused.steps).toBeLessThan(7);
    await place.service.createSamplingClient({ modelPath: paused.samplerPath });

    const abort = new AbortController();
    const aborted = train({ folder, signal: abort.signal, loggers: [atStep(7, () => abort.abort())] });
    await expect(aborted).rejects.toThrow("The run was aborted");

    let restarted: Promise<void> | undefined;
    const notes: string[] = [];
    const breaking = atStep(9, () => {
      restarted = place.restart();
    });
    const run = await train({ folder, loggers: [{ ...breaking, note: (text) => void notes.push(text) }] });
    await restarted;
    await place.renewService();
    expect(run.restores).toBeGreaterThan(0);
    expect(notes.join("\n")).toMatch(
      /Going on after \d+ steps.*\n(?:.*\n)*Step \d+ failed \(.*\n.*Trying again/,
    );
    expect(await weightsAt(place.backend, run.statePath)).toEqual(
      await weightsAt(place.backend, whole.statePath),
    );
    const metricsIn = (run: string) => lines(run, "metrics.jsonl");
    expectSameMetrics(await metricsIn(folder), await metricsIn(join(home, "whole")), { evenly: false });
  });

  it("keeps the best weights, lets go of the others, and stops when nothing better comes", async () => {
    const folder = join(home, "best");
    const scores: Record<number, number> = { 0: 1, 2: 3, 4: 5, 6: 4, 8: 5 };
    const evaluator: Evaluator = {
      name: "scripted",
      evaluate: async ({ sampler, step }) => {
        const { sequences } = await sampler.sample({ prompt: [1, 2], samplingParams: { maxTokens: 1 } });
        return { "eval/score": scores[step]! + 0 * sequences.length };
      },
    };
    const best = { metric: "eval/score", goal: "higher", patience: 2 } as const;
    const options = { folder, evaluators: [evaluator], evaluateEvery: 2, testSize: 0, best };
    const run = await train(options);
    expect(run.steps).toBe(8);
    expect(run.best).toMatchObject({ batch: 4, metric: "eval/score", value: 5 });
    const rest = place.service.createRestClient();
    const { items } = await rest.listCheckpoints(run.statePath.split("/")[2]!);
    const kept = items.filter(({ checkpointId }) => checkpointId.includes("best"));
    expect(kept.map(({ checkpointId }) => checkpointId)).toEqual(["sampler_weights/best-000004"]);
    expect(kept[0]?.expiresAt ?? null).toBeNull();
    const [last, beforeLast] = (await lines(folder, "checkpoints.jsonl")).reverse();
    expect(last).toMatchObject({ name: "final", epoch: 1, batch: 3 });
    expect(beforeLast).not.toMatchObject({ name: "final" });
    expect((await train(options)).best).toEqual(run.best);
    await expect(train({ best: { metric: "test/acc" } })).rejects.toThrow(
      'best.metric must be one of the metrics that are measured (test/nll, test/bpb), got "test/acc"',
    );
  });

  it("deletes rolling checkpoints once the next one is good", async () => {
    const folder = join(home, "rolling");
    const run = await train({ folder, save: { everySteps: 6, rollingSteps: 2 } });
    const names = (await lines(folder, "checkpoints.jsonl")).map(({ name, rolling }) => [name, rolling]);
    expect(names).toEqual([
      ["000000", true],
      ["000002", true],
      ["000004", true],
      ["000006", undefined],
      ["000008", true],
      ["000010", true],
      ["final", undefined],
    ]);
    const rest = place.service.createRestClient();
    await expect
      .poll(async () => {
        const { items } = await rest.listCheckpoints(run.statePath.split("/")[2]!);
        return items
          .map(({ checkpointId }) => checkpointId)
          .filter((id) => id.startsWith("weights"))
          .sort();
      })
      .toEqual(["weights/000006", "weights/final"]);
  });

  it("ends with a sentence when the loss is not a number, and names the last good checkpoint", async () => {
    const folder = join(home, "nan");
    const run = train({
      folder,
      learningRate: 1e30,
      schedule: "constant",
      evaluateEvery: 0,
      save: { everySteps: 1 },
    });
    await expect(run).rejects.toThrow(
      /^The loss of step 2 is NaN, so the run has ended\. The last good checkpoint is 000000: tinker:.*\/000000\. A learning rate below/,
    );
    const checkpoints = await lines(folder, "checkpoints.jsonl");
    const good = checkpoints.find(({ name }) => name === "000000");
    await place.service.createTrainingClientFromStateWithOptimizer(String(good?.["state_path"]));
  });

  it("trains on fewer rows than a batch, on sums, with warm-up", async () => {
    const run = await train({
      data: conversations([row("pig"), row("dog")]),
      testSize: 0,
      batchSize: undefined,
      epochs: 2,
      reduction: "sum",
      warmup: 1,
      schedule: "cosine",
    });
    expect(run.steps).toBe(2);
    expect(run.metrics).toMatchObject({ num_sequences: 2, epoch: 1 });
    expect(run.metrics["test/nll"]).toBeUndefined();
  });

  longTest(
    "trains more epochs in the folder of a run that is done, also after a stop on the way",
    async () => {
      const folder = join(home, "longer");
      const short = await train({ folder, epochs: 1 });
      expect(await train({ folder, epochs: 1 })).toMatchObject({ steps: 4, samplerPath: short.samplerPath });
      const stopped = new AbortController();
      const stop: TrainingLogger = {
        config: () => {},
        note: () => {},
        metrics: (_, step) => {
          if (step === 5) stopped.abort();
        },
        close: () => {},
      };
      await expect(train({ folder, signal: stopped.signal, loggers: [stop] })).rejects.toThrow();
      const long = await train({ folder });
      expect(long).toMatchObject({ isFinished: true, steps: 12 });
      expect(await train({ folder })).toMatchObject({ samplerPath: long.samplerPath });
      expect((await lines(folder, "metrics.jsonl")).map(({ step }) => step)).toEqual([...Array(13).keys()]);
      await expect(train({ folder, epochs: 1 })).rejects.toThrow("num_epochs was 3, is 1");
    },
  );

  it("trains the chosen parts of the adapter, and says which", async () => {
    const run = await train({ epochs: 1, trainUnembed: false, trainMlp: false, folder: join(home, "parts") });
    expect(run.config).toMatchObject({ train_attn: true, train_mlp: false, train_unembed: false });
    const rest = place.service.createRestClient();
    const parts = { trainAttn: true, trainMlp: false, trainUnembed: false };
    expect(await rest.getWeightsInfo(run.statePath)).toMatchObject(parts);
    // What is left out is that of the adapter.
    const next = await train({ epochs: 1, rank: undefined, startFrom: run.statePath });
    expect(await rest.getWeightsInfo(next.statePath)).toMatchObject(parts);
    const whole = train({ epochs: 1, rank: undefined, startFrom: run.statePath, trainMlp: true });
    await expect(whole).rejects.toThrow("trainMlp must be that of the adapter in startFrom (false)");
  });

  it("says at once that the weights to begin with, or to go on from, are not there", async () => {
    const notes: string[] = [];
    const logger = noteLogger(notes);
    const startFrom = "tinker://nowhere/weights/final";
    await expect(train({ startFrom, loggers: [logger] })).rejects.toThrow(/^startFrom must be a saved state/);
    expect(notes.filter((note) => note.startsWith("Trying again"))).toEqual([]);
    const folder = join(home, "elsewhere");
    // Nothing was trained there, so the mistake can be put right in the same folder.
    await expect(train({ startFrom, folder, epochs: 1 })).rejects.toThrow(/^startFrom/);
    await using other = new ServiceClient(
      await startLocalBackend({ dataDir: join(home, "other"), logger: silent }),
    );
    await train({ service: other, folder, epochs: 1 });
    await expect(train({ folder, epochs: 1 })).rejects.toThrow("this server does not have its weights");
    await expect(train({ folder })).rejects.toThrow("this server does not have its weights");
  });

  it("tells beforehand what a run would do, and trains nothing", async () => {
    const rest = place.service.createRestClient();
    const before = (await rest.listTrainingRuns()).items.length;
    const long = { messages: [question("x ".repeat(300)), { role: "assistant", content: "no" }] };
    const cut = { messages: [question("word"), { role: "assistant", content: "no ".repeat(300) }] };
    const plan = await planSupervised({
      service: place.service,
      model: "tinkerts/nano",
      data: conversations([row("pig"), { messages: [question("?")] }, long, cut]),
    });
    expect(plan.config).toMatchObject({ rows: 2, test_rows: 0, steps: 1, max_length: 512 });
    expect(plan.description).toMatch(/note +1 row cut after 512 tokens \(first: row 4\)/);
    expect(plan.description).toMatch(/note +1 row left out: no answer within 512 tokens \(first: row 3\)/);
    expect(plan.description).toMatch(/note +1 row left out: nothing to learn .*\(first: row 2\)/);
    expect((await rest.listTrainingRuns()).items.length).toBe(before);
  });

  it("refuses bad input with a sentence that names the field", async () => {
    const refused: [Partial<TrainSupervisedOptions>, RegExp][] = [
      [{ data: conversations([]) }, /^data has no rows/],
      [
        { data: conversations([{ messages: [question("?")] }]), testSize: 0 },
        /^data has no row with anything to learn/,
      ],
      [{ maxLength: 3 }, /^maxLength is 3, and no row has an answer within that many tokens/],
      [{ epochs: 0 }, /^epochs must be a positive integer, got 0/],
      [{ batchSize: 2.5 }, /^batchSize must be a positive integer/],
      [{ learningRate: -1 }, /^learningRate must be a number above 0/],
      [
        { schedule: "sudden" as "linear" },
        /^schedule must be "linear", "cosine" or "constant", got "sudden"/,
      ],
      [{ warmup: 12 }, /^warmup must be/],
      [
        {
          model: "nobody/nothing",
          renderer: "role_colon",
          tokenizer: { encode: () => [1], decode: () => "" },
        },
        /^model must be one that the server trains \(tinkerts\/nano\)/,
      ],
      [{ renderer: "morse" }, /There is no renderer "morse"/],
      [{ testSize: 24 }, /^testSize must leave rows/],
      [{ best: true, evaluateEvery: 0 }, /^best needs evaluations/],
      [{ save: { everySteps: 0 } }, /^save\.everySteps must be a positive integer/],
      [{ epoch: 2 } as Partial<TrainSupervisedOptions>, /^unknown field epoch; did you mean epochs\?/],
      [{ service: {} as ServiceClient }, /^service must be a ServiceClient/],
    ];
    for (const [options, message] of refused)
      await expect(train(options), String(message)).rejects.toThrow(message);
    const folder = join(home, "taken");
    await train({ folder, epochs: 1 });
    await expect(train({ folder, epochs: 1, learningRate: 1 })).rejects.toThrow(
      /^folder must be that of this run or a new one: the run in .*taken has other settings \(learning_rate was 0\.002, is 1\)/,
    );
  });
});

describe("startFrom with the folder of an adapter", () => {
  it("trains on from it on the built-in backend in this process, and is refused elsewhere", async () => {
    const made = await train({ folder: join(home, "first"), epochs: 1, rank: 3 });
    const { folder } = await downloadCheckpoint(place.service.createRestClient(), made.samplerPath, {
      outputDir: join(home, "adapter"),
    });
    await expect(train({ startFrom: folder, rank: undefined })).rejects.toThrow(
      `startFrom must be a tinker:// path here, got ${folder}: only the built-in backend in this process reads`,
    );
    await using backend = await startLocalBackend({ listen: false, logger: silent });
    await using service = new ServiceClient({ ...backend });
    const at = { service, startFrom: folder, rank: undefined, epochs: 1 };
    const run = await train({ ...at, folder: join(home, "second") });
    const { loraRank } = await service.createRestClient().getWeightsInfo(run.statePath);
    expect(loraRank).toBe(3);
    const [first] = await lines(join(home, "second"), "metrics.jsonl");
    expect(first!["test/nll"]).toBeCloseTo(made.metrics["test/nll"] as number, 3);
    await expect(train({ ...at, rank: 8 })).rejects.toThrow(
      "rank must be that of the adapter in startFrom (3) or left out, got 8",
    );
  });
});
