import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient, type TrainingClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { passTime } from "./pass-time.js";
import { RawClient, silent } from "./raw-client.js";

const model = {
  name: "test/tiny",
  path: fileURLToPath(new URL("../fixtures/engine/qwen3", import.meta.url)),
};

async function start(dataDir: string): Promise<LocalBackend> {
  const engine = await startEngine({ models: [model], threads: 1, inThread: true });
  return startLocalBackend({ engine, dataDir, listen: false });
}

const datum = (first: number) => {
  const tokens = Array.from({ length: 12 }, (_, index) => (first * 7 + index * 3) % 50);
  const targets = tokens.map((token) => (token * 5 + 1) % 50);
  return { modelInput: tokens, lossFnInputs: { targetTokens: targets, weights: targets.map(() => 1 / 12) } };
};

async function steps(training: TrainingClient, from: number, count: number): Promise<number[]> {
  const losses = [];
  for (let step = from; step < from + count; step += 1) {
    const pass = training.forwardBackward([datum(step % 3), datum((step + 1) % 3)], "cross_entropy");
    const update = training.optimStep({ learningRate: 1e-2, gradClipNorm: 1, weightDecay: 0.01 });
    losses.push((await pass).metrics["loss:sum"]!);
    await update;
  }
  return losses;
}

const weights = async (training: TrainingClient) =>
  (await training.forward([datum(0), datum(1)], "cross_entropy")).lossFnOutputs.map((output) =>
    output["logprobs"]?.toArray(),
  );

describe("a backend with the real engine", () => {
  let dataDir: string;
  let backend: LocalBackend;
  let service: ServiceClient;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), "tinkerts-real-"));
    backend = await start(dataDir);
    service = new ServiceClient(backend);
  });
  afterAll(async () => {
    await service.close();
    await backend.close();
    await rm(dataDir, { recursive: true });
  });

  it.each(["importance_sampling", "ppo", "cispo", "dro"] as const)(
    "does not learn from tokens that %s masks by their weights",
    async (lossFn) => {
      const policyDatum = (mask: number[] | undefined, advantageOfMasked: number) => {
        const { modelInput, lossFnInputs } = datum(1);
        return {
          modelInput,
          lossFnInputs: {
            targetTokens: lossFnInputs.targetTokens,
            logprobs: modelInput.map(() => -4),
            advantages: modelInput.map((_, index) => (index < 6 ? advantageOfMasked : 1)),
            ...(mask && { weights: mask }),
          },
        };
      };
      const half = Array.from({ length: 12 }, (_, index) => (index < 6 ? 0 : 1));
      const trained = async (mask: number[] | undefined, advantageOfMasked: number) => {
        const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 1 });
        const pass = await training.forwardBackward([policyDatum(mask, advantageOfMasked)], lossFn);
        await training.optimStep({ learningRate: 1e-2 });
        return [pass.metrics["loss:sum"], await weights(training)];
      };
      const masked = await trained(half, 1);
      expect(masked).toEqual(await trained(half, -3));
      expect(masked).not.toEqual(await trained(undefined, 1));
    },
  );

  it("counts every token in full where cross_entropy has no weights, in both kinds of pass", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 1 });
    const { modelInput, lossFnInputs } = datum(1);
    const { targetTokens } = lossFnInputs;
    const without = [{ modelInput, lossFnInputs: { targetTokens } }];
    const ones = [{ modelInput, lossFnInputs: { targetTokens, weights: targetTokens.map(() => 1) } }];
    const expected = (await training.forward(ones, "cross_entropy")).metrics["loss:sum"];
    expect((await training.forward(without, "cross_entropy")).metrics["loss:sum"]).toBe(expected);
    expect((await training.forwardBackward(without, "cross_entropy")).metrics["loss:sum"]).toBe(expected);
  });

  it("scores what it trains on, up to the end of the context", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 1 });
    const { supportedModels } = await service.getServerCapabilities();
    const context = supportedModels[0]!.maxContextLength!;
    const tokens = Array.from({ length: context + 1 }, (_, index) => (index * 7) % 50);
    const modelInput = tokens.slice(0, context);
    const lossFnInputs = { targetTokens: tokens.slice(1) };
    const pass = await training.forwardBackward([{ modelInput, lossFnInputs }], "cross_entropy");
    const sampler = await training.saveWeightsAndGetSamplingClient();
    const scores = await sampler.computeLogprobs(modelInput);
    const trained = [...pass.lossFnOutputs[0]!.logprobs.toArray()];
    expect(scores.slice(1)).toEqual(trained.slice(0, context - 1));
    const prompt = tokens.slice(0, 100);
    const { sequences } = await sampler.sample({ prompt, samplingParams: { stop: [] } });
    expect(sequences[0]!.tokens).toHaveLength(context + 1 - 100);
    await expect(sampler.sample({ prompt, samplingParams: { maxTokens: context - 98 } })).rejects.toThrow(
      /leave room for/,
    );
  });

  it("lets samplers in flight follow the weights, while a snapshot keeps its own", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 2 });
    const tokens = [3, 1, 4, 1, 5];
    const first = await training.saveWeightsAndGetSamplingClient({ kind: "inflight" });
    const kept = await training.saveWeightsAndGetSamplingClient();
    const before = await first.computeLogprobs(tokens);
    expect(await kept.computeLogprobs(tokens)).toEqual(before);
    await steps(training, 0, 3);
    const second = await training.saveWeightsAndGetSamplingClient({ kind: "inflight" });
    const after = await second.computeLogprobs(tokens);
    expect(after).not.toEqual(before);
    expect(await first.computeLogprobs(tokens)).toEqual(after);
    expect(await kept.computeLogprobs(tokens)).toEqual(before);
    await expect(training.saveWeightsAndGetSamplingClient({ kind: "live" as "inflight" })).rejects.toThrow(
      'kind must be "snapshot" or "inflight"',
    );
  });

  it("samples for a session at once while another has a long queue", async () => {
    const other = new ServiceClient({ ...backend });
    const busy = await service.createSamplingClient({ baseModel: model.name });
    const sampler = await other.createSamplingClient({ baseModel: model.name });
    const samplingParams = { maxTokens: 100, stop: [] };
    let ended = 0;
    const backlog = Array.from({ length: 60 }, (_, index) =>
      busy.sample({ prompt: [index % 50, 1, 2], numSamples: 8, samplingParams }).then(() => (ended += 1)),
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
    await sampler.sample({ prompt: [1, 2, 3], samplingParams: { maxTokens: 8, stop: [] } });
    expect(ended).toBeLessThan(30);
    await Promise.all(backlog);
    await other.close();
  });

  it("learns", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 1 });
    const losses = await steps(training, 0, 30);
    expect(losses.at(-1)).toBeLessThan(losses[0]! * 0.5);
  });

  it("reports metrics under the protocol's names", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 4, seed: 1 });
    const { modelInput, lossFnInputs } = datum(0);
    const zeros = modelInput.map(() => 0);
    const inputs = { targetTokens: lossFnInputs.targetTokens, logprobs: zeros, advantages: zeros };
    const pass = training.forwardBackward([{ modelInput, lossFnInputs: inputs }], "ppo");
    const step = await training.optimStep();
    expect(Object.keys((await pass).metrics).sort()).toEqual([
      "clipped_tokens:sum",
      "loss:sum",
      "tokens:sum",
    ]);
    expect(Object.keys(step.metrics ?? {}).sort()).toEqual(["grad_norm:mean", "learning_rate:mean"]);
  });

  it("goes on from a checkpoint exactly as if it had never stopped, in another process's place too", async () => {
    const straight = await service.createLoraTrainingClient({ baseModel: model.name, rank: 4, seed: 2 });
    await steps(straight, 0, 5);
    const { path } = await straight.saveState("five");
    const expected = await steps(straight, 5, 20);
    const finalLogprobs = await weights(straight);

    const resumed = await service.createTrainingClientFromStateWithOptimizer(path);
    expect(await steps(resumed, 5, 20)).toEqual(expected);
    expect(await weights(resumed)).toEqual(finalLogprobs);

    await service.close();
    await backend.close();
    backend = await start(dataDir);
    service = new ServiceClient(backend);
    const restarted = await service.createTrainingClientFromStateWithOptimizer(path);
    expect(await steps(restarted, 5, 20)).toEqual(expected);
    expect(await weights(restarted)).toEqual(finalLogprobs);
  });

  it("samples from the trained weights, the same for the same seed, whatever else is sampled", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 3 });
    await steps(training, 0, 10);
    const { path } = await training.saveWeightsForSampler("trained");
    const samplers = [
      await training.saveWeightsAndGetSamplingClient(),
      await service.createSamplingClient({ modelPath: path }),
    ];
    const request = {
      prompt: [1, 2, 3],
      numSamples: 3,
      samplingParams: { maxTokens: 8, seed: 5, temperature: 0.9 },
    };
    const [alone] = await Promise.all([samplers[0]!.sample(request)]);
    const crowd = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        index === 7
          ? samplers[1]!.sample(request)
          : samplers[index % 2]!.sample({
              ...request,
              prompt: [index, 4],
              samplingParams: { maxTokens: 5, seed: index },
            }),
      ),
    );
    expect(crowd[7]?.sequences.map((sequence) => [...sequence.tokens])).toEqual(
      alone?.sequences.map((sequence) => [...sequence.tokens]),
    );
    expect(crowd[7]?.sequences.map((sequence) => [...sequence.logprobs!])).toEqual(
      alone?.sequences.map((sequence) => [...sequence.logprobs!]),
    );
    const base = await service.createSamplingClient({ baseModel: model.name });
    const greedy = { prompt: [1, 2, 3], samplingParams: { maxTokens: 1, temperature: 0 } };
    const baseLogprob = (await base.sample(greedy)).sequences[0]?.logprobs?.[0];
    expect((await samplers[0]!.sample(greedy)).sequences[0]?.logprobs?.[0]).not.toBe(baseLogprob);
  });

  it("scores prompts as training does", async () => {
    const training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 8, seed: 4 });
    await steps(training, 0, 5);
    const tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    const forward = await training.forward(
      [
        {
          modelInput: tokens.slice(0, -1),
          lossFnInputs: { targetTokens: tokens.slice(1), weights: new Array(7).fill(1) },
        },
      ],
      "cross_entropy",
    );
    const sampler = await training.saveWeightsAndGetSamplingClient();
    const scored = await sampler.computeLogprobs(tokens);
    const trained = forward.lossFnOutputs[0]!["logprobs"]!.toArray();
    expect(scored[0]).toBeNull();
    expect(scored.slice(1)).toEqual(trained.map((value) => expect.closeTo(value, 5)));
  });

  it("says what the engine cannot do as the user's error", async () => {
    const training = await service.createLoraTrainingClient({
      baseModel: model.name,
      rank: 4,
      trainMlp: false,
    });
    await expect(
      training.forwardBackward(
        [{ modelInput: [1, 2_000_000], lossFnInputs: { targetTokens: [1, 2], weights: [1, 1] } }],
        "cross_entropy",
      ),
    ).rejects.toThrow(/token 2000000/);
    await expect(training.optimStep({ learningRate: 1e-3 })).resolves.toBeDefined();
  });
});

it("leaves the engine to others while the client of a long sample is gone, and draws the same once it is back", async () => {
  const clock = new FakeClock();
  const engine = await startEngine({ models: [model], threads: 1, inThread: true });
  const { maxContextLength } = (await engine.models())[0]!;
  await using backend = await startLocalBackend({ engine, listen: false, clock, logger: silent });
  const client = new RawClient(backend);
  const openSampler = async () => {
    const sessionId = await client.openSession();
    const sampler = { session_id: sessionId, sampling_session_seq_id: 0, base_model: model.name };
    return { sessionId, id: (await client.ok("/create_sampling_session", sampler))["sampling_session_id"] };
  };
  const body = (id: unknown, seqId: number, samples: number) => ({
    sampling_session_id: id,
    seq_id: seqId,
    num_samples: samples,
    prompt: { chunks: [{ type: "encoded_text", tokens: [5, 6] }] },
    sampling_params: { max_tokens: maxContextLength - 2, seed: 7, stop: [] },
  });
  const gone = await openSampler();
  const expected = await client.sampleResult(await client.ok("/asample", body(gone.id, 0, 4)));
  const long = [];
  for (let seqId = 1; seqId <= 200; seqId += 1)
    long.push(await client.ok("/asample", body(gone.id, seqId, 4)));
  await passTime(clock, 30_000);
  const other = await openSampler();
  await client.sampleResult(await client.ok("/asample", body(other.id, 0, 1)));
  const { body: trace } = await client.get(`/sessions/${gone.sessionId}/trace_export`);
  const drawn = await (await client.send("GET", String(trace["url"]))).text();
  expect(drawn.split('"sample"').length).toBeLessThan(200);
  for (const accepted of [long[0]!, long.at(-1)!]) {
    expect((await client.sampleResult(accepted)).sequences).toEqual(expected.sequences);
  }
});
