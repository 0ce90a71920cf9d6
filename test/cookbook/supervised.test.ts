import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
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
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { atStep, lines, untimed, weightsAt } from "./run-files.js";

const question = (word: string) => ({ role: "user", content: `Pig Latin: ${word}` });
const row = (word: string) => ({
  messages: [question(word), { role: "assistant", content: pigLatin(word) }],
});

let home: string;
let backend: LocalBackend;
let service: ServiceClient;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "tinkerts-supervised-"));
  backend = await startLocalBackend({ dataDir: join(home, "data"), logger: silent });
  // Over the socket alone, as the backend is exchanged for another at the same place.
  service = new ServiceClient({ baseURL: backend.baseURL, apiKey: backend.apiKey, logLevel: "off" });
});
afterAll(async () => {
  await service.close();
  await backend.close();
  await rm(home, { recursive: true, force: true });
});

const SMALL = conversations(trainingWords.slice(0, 24).map(row));

/** A run of 12 steps over 24 rows, a few of them held out. */
const train = (options: Partial<TrainSupervisedOptions> = {}) =>
  trainSupervised({
    service,
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

describe("trainSupervised", () => {
  it("teaches nano Pig Latin, and says what it does", async () => {
    const said: string[] = [];
    const logger: TrainingLogger = {
      config: () => {},
      metrics: () => {},
      note: (text) => void said.push(text),
      close: () => {},
    };
    const run = await trainSupervised({
      service,
      model: "tinkerts/nano",
      data: conversations(trainingWords.slice(0, 280).map(row)),
      batchSize: 14,
      epochs: 2,
      evaluateEvery: 20,
      pricePerMillionTokens: 100,
      loggers: [logger],
    });
    expect(said[0]).toMatch(/model +tinkerts\/nano, a LoRA adapter of rank 32/);
    expect(said[0]).toMatch(/renderer +qwen3_instruct, learning all_assistant_messages/);
    expect(said[0]).toMatch(/rows +252 to learn from, 28 held out/);
    expect(said[0]).toMatch(/steps +36: 2 epochs of 18, 14 rows each/);
    expect(said[0]).toMatch(/rate +0\.002, linear \(found by trying for tinkerts\/nano\)/);
    expect(said[0]).toMatch(/cost +about 1\.\d\d for training on 12,\d\d\d tokens/);
    expect(said.at(-1)).toBe(`Trained 36 steps: ${run.samplerPath}`);
    expect(run.metrics["test/nll"]).toBeLessThan(0.5);
    expect(run.metrics["train_mean_nll"]).toBeLessThan(0.3);
    const sampler = await service.createSamplingClient({ modelPath: run.samplerPath });
    const words = heldOutWords.slice(0, 20);
    const answers = await Promise.all(
      words.map((word) => chat(sampler, [question(word)], { temperature: 0, maxTokens: 20 })),
    );
    const right = answers.filter(({ text }, index) => text === pigLatin(words[index]!));
    expect(right.length).toBeGreaterThan(8);
  }, 120_000);

  it("writes the Python cookbook's files, and measures before, during and after", async () => {
    const folder = join(home, "files");
    const run = await train({ folder });
    expect(run).toMatchObject({ isFinished: true, steps: 12, restores: 0 });
    const { userMetadata } = await service.createRestClient().getTrainingRun(run.samplerPath);
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
    const held = await service.createRestClient().listCheckpoints(run.statePath.split("/")[2]!);
    const ids = held.items.map(({ checkpointId }) => checkpointId).sort();
    expect(ids).toEqual([
      "sampler_weights/000004",
      "sampler_weights/000008",
      "sampler_weights/final",
      "weights/000004",
      "weights/000008",
      "weights/final",
    ]);

    const again = await train({ folder });
    expect(again).toEqual({ ...run, metrics: { ...run.metrics, ...again.metrics } });
    expect(await lines(folder, "metrics.jsonl")).toHaveLength(13);
  }, 60_000);

  it("ends bit for bit the same when it was paused, aborted and cut off from its server", async () => {
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
    await service.createSamplingClient({ modelPath: paused.samplerPath });

    const abort = new AbortController();
    const aborted = train({ folder, signal: abort.signal, loggers: [atStep(7, () => abort.abort())] });
    await expect(aborted).rejects.toThrow("The run was aborted");

    let restarted: Promise<void> | undefined;
    const notes: string[] = [];
    const restart = async () => {
      const port = Number(new URL(backend.baseURL).port);
      await backend.close();
      backend = await startLocalBackend({ dataDir: join(home, "data"), port, logger: silent });
    };
    const breaking = atStep(9, () => {
      restarted = restart();
    });
    const run = await train({ folder, loggers: [{ ...breaking, note: (text) => void notes.push(text) }] });
    await restarted;
    // The session of this one ended with the first backend.
    await service.close();
    service = service.clone();
    expect(run.restores).toBeGreaterThan(0);
    expect(notes.join("\n")).toMatch(
      /Going on after \d+ steps.*\n(?:.*\n)*Step \d+ failed \(.*\n.*Trying again/,
    );
    expect(await weightsAt(backend, run.statePath)).toEqual(await weightsAt(backend, whole.statePath));
    expect(untimed(await lines(folder, "metrics.jsonl"))).toEqual(
      untimed(await lines(join(home, "whole"), "metrics.jsonl")),
    );
  }, 120_000);

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
    const rest = service.createRestClient();
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
  }, 60_000);

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
    const rest = service.createRestClient();
    await expect
      .poll(async () => {
        const { items } = await rest.listCheckpoints(run.statePath.split("/")[2]!);
        return items
          .map(({ checkpointId }) => checkpointId)
          .filter((id) => id.startsWith("weights"))
          .sort();
      })
      .toEqual(["weights/000006", "weights/final"]);
  }, 60_000);

  it("ends with a sentence when the loss is no number, and names the last good checkpoint", async () => {
    const folder = join(home, "nan");
    const run = train({
      folder,
      learningRate: 1e30,
      schedule: "constant",
      evaluateEvery: 0,
      save: { everySteps: 1 },
    });
    await expect(run).rejects.toThrow(
      /^The loss of step 1 is NaN, so the run has ended\. The last good checkpoint is 000000: tinker:.*\/000000\. A learning rate below/,
    );
    const checkpoints = await lines(folder, "checkpoints.jsonl");
    const good = checkpoints.find(({ name }) => name === "000000");
    await service.createTrainingClientFromStateWithOptimizer(String(good?.["state_path"]));
  }, 60_000);

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
  }, 30_000);

  it("tells beforehand what a run would do, and trains nothing", async () => {
    const rest = service.createRestClient();
    const before = (await rest.listTrainingRuns()).items.length;
    const long = { messages: [question("x ".repeat(300)), { role: "assistant", content: "no" }] };
    const cut = { messages: [question("word"), { role: "assistant", content: "no ".repeat(300) }] };
    const plan = await planSupervised({
      service,
      model: "tinkerts/nano",
      data: conversations([row("pig"), { messages: [question("?")] }, long, cut]),
    });
    expect(plan.config).toMatchObject({ rows: 2, test_rows: 0, steps: 1, max_length: 512 });
    expect(plan.description).toMatch(/note +1 row cut after 512 tokens \(first: row 4\)/);
    expect(plan.description).toMatch(/note +1 row left out: no answer within 512 tokens \(first: row 3\)/);
    expect(plan.description).toMatch(/note +1 row left out: nothing to learn .*\(first: row 2\)/);
    expect((await rest.listTrainingRuns()).items.length).toBe(before);
  }, 30_000);

  it("refuses bad input with a sentence that names the field", async () => {
    const refused: [Partial<TrainSupervisedOptions>, RegExp][] = [
      [{ data: conversations([]) }, /^data has no rows/],
      [
        { data: conversations([{ messages: [question("?")] }]), testSize: 0 },
        /^data has no row with anything to learn/,
      ],
      [{ maxLength: 3 }, /^maxLength is 3, and no row has an answer within that many tokens/],
      [{ epochs: 0 }, /^epochs must be a whole number from 1, got 0/],
      [{ batchSize: 2.5 }, /^batchSize must be a whole number/],
      [{ learningRate: -1 }, /^learningRate must be a number above 0/],
      [{ schedule: "sudden" as "linear" }, /^schedule must be one of linear, cosine, constant, got "sudden"/],
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
      [{ save: { everySteps: 0 } }, /^save\.everySteps must be a whole number/],
      [{ epoch: 2 } as Partial<TrainSupervisedOptions>, /^unknown field epoch; did you mean epochs\?/],
      [{ service: {} as ServiceClient }, /^service must be a ServiceClient/],
    ];
    for (const [options, message] of refused)
      await expect(train(options), String(message)).rejects.toThrow(message);
    const folder = join(home, "taken");
    await train({ folder, epochs: 1 });
    await expect(train({ folder, epochs: 1, learningRate: 1 })).rejects.toThrow(
      /^folder must be that of this run or a new one: the run in .*taken has other settings \(learning_rate\)/,
    );
  }, 60_000);
});
