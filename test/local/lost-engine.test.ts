import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { RestClient, ServiceClient, type TrainingClient } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { silent } from "./raw-client.js";

const datum = { modelInput: [1, 2, 3], lossFnInputs: { targetTokens: [2, 3, 4], weights: [1, 1, 1] } };
const refused = { ...datum, modelInput: [99, 2, 3] };
const prompt = [1, 2, 3];

describe("runs whose engine was lost", () => {
  let engine: FakeEngine;
  let backend: LocalBackend;
  let service: ServiceClient;
  let logged: string[];

  beforeEach(async () => {
    engine = new FakeEngine();
    logged = [];
    const logger = { ...silent, error: (message: string) => logged.push(message) };
    backend = await startLocalBackend({ engine, listen: false, logger });
    service = new ServiceClient(backend);
  });
  afterEach(async () => {
    await service.close();
    await backend.close();
  });

  const create = (seed = 3) => service.createLoraTrainingClient({ baseModel: fakeModel.name, rank: 4, seed });
  async function train(training: TrainingClient): Promise<void> {
    await training.forwardBackward([datum], "cross_entropy");
    await training.optimStep({ learningRate: 0.1 });
  }
  const logprobs = async (training: TrainingClient) => {
    const { lossFnOutputs } = await training.forward([datum], "cross_entropy");
    return lossFnOutputs[0]!["logprobs"]!.toArray();
  };
  const isCorrupted = async (training: TrainingClient) =>
    (await new RestClient(backend).getTrainingRun(training.modelId)).corrupted;

  it("are marked where their work was not saved, and only there; the server says what happened", async () => {
    const [unsaved, gathering, saved, fresh] = [
      await create(),
      await create(),
      await create(),
      await create(),
    ];
    await train(unsaved);
    for (const training of [gathering, saved]) {
      await train(training);
      await training.saveState("last");
    }
    await gathering.forwardBackward([datum], "cross_entropy");
    engine.lose("The GPU was lost: it fell off the bus");
    expect(logged).toEqual(["The GPU was lost: it fell off the bus. Begin again."]);
    await expect(unsaved.optimStep({ learningRate: 0.1 })).rejects.toThrow(
      /is corrupted \(The GPU was lost: it fell off the bus\); create a new one from its last checkpoint/,
    );
    await expect(gathering.saveState("next")).rejects.toThrow(/is corrupted/);
    for (const training of [unsaved, gathering]) expect(await isCorrupted(training)).toBe(true);
    for (const training of [saved, fresh]) {
      expect(await logprobs(training)).toHaveLength(3);
      expect(await isCorrupted(training)).toBe(false);
    }
  });

  it("go on from where they were saved, to the same bits", async () => {
    const other = await create();
    const training = await create();
    for (const one of [other, training]) {
      await train(one);
      await one.saveState("last");
    }
    // What is refused changes nothing.
    await expect(training.forwardBackward([refused], "cross_entropy")).rejects.toThrow(/token 99/);
    engine.lose("The GPU was lost");
    await train(training);
    const disturbed = await logprobs(training);
    await train(other);
    expect(disturbed).toEqual(await logprobs(other));
    const { path } = await training.saveState("after");
    engine.lose("The GPU was lost");
    const again = await service.createTrainingClientFromStateWithOptimizer(path);
    expect(await logprobs(again)).toEqual(disturbed);
  });

  it("cannot go on where the checkpoint is gone too", async () => {
    const training = await create();
    await train(training);
    const { path } = await training.saveState("last");
    await new RestClient(backend).deleteCheckpoint(path);
    engine.lose("The GPU was lost");
    await expect(training.forward([datum], "cross_entropy")).rejects.toThrow(/was deleted/);
    await expect(training.forward([datum], "cross_entropy")).rejects.toThrow(/is corrupted/);
    expect(await isCorrupted(training)).toBe(true);
  });

  it("fail what waits with the reason", async () => {
    const training = await create();
    const base = await service.createSamplingClient({ baseModel: fakeModel.name });
    engine.hold();
    const waiting = [
      training.forwardBackward([datum], "cross_entropy"),
      base.sample({ prompt, numSamples: 1, samplingParams: { maxTokens: 4 } }),
    ];
    while (engine.calls.length < 3) await new Promise((resolve) => setTimeout(resolve, 5));
    engine.lose("The GPU was lost: it fell off the bus");
    for (const one of waiting)
      await expect(one).rejects.toThrow(/The GPU was lost: it fell off the bus\. Begin/);
    expect(await isCorrupted(training)).toBe(true);
    const { sequences } = await base.sample({ prompt, numSamples: 1, samplingParams: { maxTokens: 4 } });
    expect(sequences).toHaveLength(1);
  });

  it("leave samplers of saved weights as they were; unnamed weights are gone", async () => {
    const training = await create();
    await train(training);
    const named = await service.createSamplingClient({
      modelPath: (await training.saveWeightsForSampler("good")).path,
    });
    const unnamed = await training.saveWeightsAndGetSamplingClient();
    const sample = async (sampler: typeof named) =>
      (await sampler.sample({ prompt, numSamples: 1, samplingParams: { maxTokens: 4 } })).sequences[0]!
        .logprobs;
    const before = await sample(named);
    expect(await sample(unnamed)).toEqual(before);
    engine.lose("The GPU was lost");
    expect(await sample(named)).toEqual(before);
    await expect(sample(unnamed)).rejects.toThrow(/weights are gone: they had no name/);
  });
});
