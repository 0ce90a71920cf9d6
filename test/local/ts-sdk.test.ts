import { describe, expect, it } from "vitest";
import { ConflictError, ServiceClient } from "../../src/index.js";
import { type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { silent } from "./raw-client.js";

const datum = (first: number, length = 6) => {
  const tokens = Array.from({ length }, (_, index) => ((first + index) % 90) + 1);
  return {
    modelInput: tokens,
    lossFnInputs: { targetTokens: tokens.map((token) => token + 1), weights: tokens.map(() => 1) },
  };
};

describe("new ServiceClient(backend)", () => {
  it("closes the backend with the last client that was handed it; clients of a copy leave it open", async () => {
    const engine = new FakeEngine();
    const backend = await startLocalBackend({ engine, logger: silent });
    const [one, two] = [new ServiceClient(backend), new ServiceClient(backend)];
    const copy = new ServiceClient({ ...backend });
    await copy.getServerCapabilities();
    await copy.close();
    await one.clone().close();
    await one.close();
    await two.getServerCapabilities();
    await two.close();
    await expect(fetch(`${backend.baseURL}/api/v1/healthz`)).rejects.toThrow("fetch failed");
    const late = new ServiceClient({ ...backend });
    await expect(late.getServerCapabilities()).rejects.toThrow("The backend is closed");
    await late.close();
    await backend.close();
  });

  it.each<[string, LocalBackendOptions, boolean]>([
    ["without a socket", { listen: false }, true],
    ["over a socket", {}, false],
    [
      "with keys, tokens, one poll for all samples and models created from checkpoints",
      {
        apiKeys: ["tml-one-key-of-the-test"],
        clientConfig: {
          pjwtAuthEnabled: true,
          sampleUseRetrieveFutures: true,
          createModelViaLoadWeights: true,
        },
      },
      false,
    ],
  ])("trains, samples, saves and loads %s", async (_, options, inProcess) => {
    await using backend = await startLocalBackend({ engine: new FakeEngine(), logger: silent, ...options });
    const { baseURL, apiKey } = backend;
    await using service = new ServiceClient(inProcess ? backend : { baseURL, apiKey });
    const { supportedModels } = await service.getServerCapabilities();
    expect(supportedModels.map((model) => model.modelName)).toEqual([fakeModel.name]);
    const training = await service.createLoraTrainingClient({ baseModel: fakeModel.name, rank: 4, seed: 3 });
    const pass = training.forwardBackward([datum(1), datum(2)], "cross_entropy");
    const step = training.optimStep({ learningRate: 0.1 });
    const after = training.forward([datum(1)], "cross_entropy");
    expect((await pass).lossFnOutputs).toHaveLength(2);
    expect((await step).metrics).toEqual({ "step:max": 1 });
    const reference = (await after).lossFnOutputs[0]?.["logprobs"]?.toArray();
    const many = await training.forwardBackward(
      Array.from({ length: 1100 }, (_, index) => datum(index % 20)),
      "cross_entropy",
    );
    expect(many.lossFnOutputs).toHaveLength(1100);

    const { path } = await training.saveState("saved");
    const loaded = await service.createTrainingClientFromStateWithOptimizer(path);
    const again = await loaded.forward([datum(1)], "cross_entropy");
    expect(again.lossFnOutputs[0]?.["logprobs"]?.toArray()).toEqual(reference);
    expect((await loaded.optimStep({ learningRate: 0.1 })).metrics).toEqual({ "step:max": 2 });

    const sampler = await training.saveWeightsAndGetSamplingClient();
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        sampler.sample({ prompt: [index + 1], numSamples: 2, samplingParams: { maxTokens: 2 } }),
      ),
    );
    expect(answers.map(({ sequences }) => sequences.length)).toEqual(new Array(50).fill(2));
    expect(answers[3]?.sequences[0]?.sequenceId).toMatch(/:0$/);

    await expect(training.forwardBackward([datum(1)], { name: "nope" })).rejects.toThrow(
      /lossFn must be one of/,
    );
    expect((await training.optimStep({ learningRate: 0 })).metrics).toEqual({ "step:max": 2 });

    const rest = service.createRestClient();
    const runs = [];
    for await (const run of rest.listTrainingRuns()) runs.push(run.trainingRunId);
    expect(runs).toContain(training.modelId);
    expect((await rest.getWeightsInfo(path)).loraRank).toBe(4);
    const archive = await rest.getCheckpointArchiveUrl(path);
    expect((await backend.fetch(archive.url)).status).toBe(200);
    await rest.deleteCheckpoint(path);
    await expect(rest.getWeightsInfo(path)).rejects.toThrow(/404|no checkpoint/i);
  });
});

describe("saving under a name that exists", () => {
  it("is a ConflictError at once, and stops nothing behind it", async () => {
    await using backend = await startLocalBackend({
      engine: new FakeEngine(),
      listen: false,
      logger: silent,
    });
    await using service = new ServiceClient(backend);
    const training = await service.createLoraTrainingClient({ baseModel: fakeModel.name, rank: 4 });
    await training.saveState("taken");
    const taken = training.saveState("taken");
    const behind = training.optimStep({ learningRate: 0.1 });
    await expect(taken).rejects.toThrow(ConflictError);
    expect((await behind).metrics).toEqual({ "step:max": 1 });
  });

  it("is none when an earlier try of the same call had saved and its answer was lost", async () => {
    await using backend = await startLocalBackend({
      engine: new FakeEngine(),
      listen: false,
      logger: silent,
    });
    let isLost = false;
    const losing: typeof fetch = async (input, init) => {
      const answer = await backend.fetch(input, init);
      if (isLost || !new Request(input, init).url.endsWith("/save_weights")) return answer;
      isLost = true;
      throw new TypeError("fetch failed");
    };
    await using service = new ServiceClient({ ...backend, fetch: losing, logLevel: "off" });
    const training = await service.createLoraTrainingClient({ baseModel: fakeModel.name, rank: 4 });
    expect((await training.saveState("once")).path).toMatch(/\/weights\/once$/);
    expect(isLost).toBe(true);
  });
});
