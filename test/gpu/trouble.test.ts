import { execFile } from "node:child_process";
import { afterEach, describe, expect, it } from "vitest";
import { RestClient, ServiceClient } from "../../src/index.js";
import { chooseDevice, MIN_GPU_PARAMETERS } from "../../src/local/engine/choose-device.js";
import { EngineInputError, type ReplaceableEngine } from "../../src/local/engine/engine.js";
import { EngineCore } from "../../src/local/engine/engine-core.js";
import { folderModel } from "../../src/local/engine/folder-model.node.js";
import { firstBitDifference } from "../../src/local/engine/kernels/test-support.js";
import { openMachineGpu } from "../../src/local/engine/kernels/webgpu/dawn.node.js";
import type { GpuContext } from "../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { LastingEngine } from "../../src/local/engine/lasting-engine.js";
import { startLocalBackend } from "../../src/local/index.js";
import { systemClock } from "../../src/transport/clock.js";
import { run } from "../cli/command.js";
import { adam, crossEntropy, lora, randomTokens, trainingData } from "../engine/engines.js";
import { fixture } from "../engine/golden.js";
import { silent } from "../local/raw-client.js";
import { openKernels } from "./gpus.js";

const MODEL = "qwen3";
const MEBIBYTE = 2 ** 20;

/** An engine with the tiny model, and the device that it is on. */
async function openEngine(memoryBytes = 256 * MEBIBYTE): Promise<ReplaceableEngine & { card: GPUDevice }> {
  const kernels = await openKernels({ memoryBytes });
  const engine = await EngineCore.create({
    kernels,
    models: [folderModel({ name: MODEL, path: fixture(MODEL) })],
    freshSeed: () => 1,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
  return Object.assign(engine, { card: (kernels as unknown as GpuContext).gpu.device });
}

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

describe("a device that is lost", () => {
  /** A backend on the card, which can be taken away. */
  async function losableBackend() {
    let device: GPUDevice | undefined;
    let starts = 0;
    const engine = await LastingEngine.start(async () => {
      starts += 1;
      const started = await openEngine();
      device = started.card;
      return started;
    }, systemClock);
    const backend = await startLocalBackend({ engine, listen: false, logger: silent });
    const service = new ServiceClient(backend);
    closers.push(
      () => backend.close(),
      () => service.close(),
    );
    const isCorrupted = async (modelId: string) =>
      (await new RestClient(backend).getTrainingRun(modelId)).corrupted;
    return { service, isCorrupted, lose: () => device!.destroy(), starts: () => starts };
  }

  const tokens = [...randomTokens(12, 1)];
  const datum = { modelInput: tokens, lossFnInputs: { targetTokens: tokens } };
  const prompt = tokens.slice(0, 5);
  const samplingParams = { maxTokens: 8, temperature: 0 };

  it("in the middle of work is replaced: unsaved work is marked, saved work goes on to the same bits", async () => {
    const { service, isCorrupted, lose, starts } = await losableBackend();
    const create = () => service.createLoraTrainingClient({ baseModel: MODEL, rank: 4, seed: 1 });
    const [saved, unsaved] = [await create(), await create()];
    for (const training of [saved, unsaved]) {
      await training.forwardBackward([datum], "cross_entropy");
      await training.optimStep({ learningRate: 1e-2 });
    }
    const logprobsOf = async (training: typeof saved) =>
      (await training.forward([datum], "cross_entropy")).lossFnOutputs[0]!["logprobs"]!.toArray();
    const before = await logprobsOf(saved);
    const { path } = await saved.saveState("last");
    const { path: modelPath } = await saved.saveWeightsForSampler("last");

    const waiting = unsaved.forwardBackward(Array(8).fill(datum), "cross_entropy");
    await waiting.submitted;
    lose();
    await expect(waiting).rejects.toThrow(
      /The GPU was lost: .*The engine restarts: saved checkpoints are safe/,
    );
    await expect(unsaved.optimStep({ learningRate: 1e-2 })).rejects.toThrow(
      /is corrupted \(The GPU was lost.*\); create a new one from its last checkpoint/,
    );
    expect(await isCorrupted(unsaved.modelId)).toBe(true);
    expect(await logprobsOf(saved)).toEqual(before);
    expect(await isCorrupted(saved.modelId)).toBe(false);
    const again = await service.createTrainingClientFromStateWithOptimizer(path);
    expect(await logprobsOf(again)).toEqual(before);

    const sampler = await service.createSamplingClient({ modelPath });
    const sample = async () => {
      const { sequences } = await sampler.sample({ prompt, numSamples: 1, samplingParams });
      return sequences[0]!.logprobs;
    };
    const sampled = await sample();
    const endless = sampler.sample({ prompt, numSamples: 8, samplingParams: { maxTokens: 100 } });
    const failed = expect(endless).rejects.toThrow(/The GPU was lost: .*sent again/);
    await new Promise((resolve) => setTimeout(resolve, 300));
    lose();
    await failed;
    expect(await sample()).toEqual(sampled);
    expect(starts()).toBe(3);
  });

  it("without waiting requests is replaced as well", async () => {
    const { service, lose, starts } = await losableBackend();
    const training = await service.createLoraTrainingClient({ baseModel: MODEL, rank: 4, seed: 1 });
    lose();
    await training.saveState("fresh");
    expect(starts()).toBe(2);
  });
});

describe("a program that ends in the middle of training", () => {
  it("ends as it said, and not in the driver", async () => {
    // Which finds the driver.
    await (await openKernels()).close();
    const program = `
      import { ServiceClient } from "tinkerts";
      import { startLocalBackend } from "tinkerts/local";
      const models = [{ name: "tiny", path: ${JSON.stringify(fixture(MODEL))} }];
      const backend = await startLocalBackend({ models, device: "gpu", listen: false });
      const service = new ServiceClient(backend);
      const training = await service.createLoraTrainingClient({ baseModel: "tiny", rank: 4 });
      const datum = { modelInput: [1, 2, 3], lossFnInputs: { targetTokens: [2, 3, 4] } };
      await training.forwardBackward([datum], "cross_entropy");
      for (let step = 0; step < 100; step += 1) training.forwardBackward([datum], "cross_entropy");
      setTimeout(() => process.exit(3), 500);
    `;
    const ended = await new Promise<{ code: unknown; stderr: string }>((resolve) => {
      execFile(process.execPath, ["--input-type=module", "-e", program], (error, _, stderr) => {
        resolve({ code: error?.code, stderr });
      });
    });
    expect(ended).toEqual({ code: 3, stderr: "" });
  });
});

describe("memory that does not suffice", () => {
  it("refuses a batch before anything has changed, and the next one goes on to the same bits", async () => {
    const small = trainingData(2, 3);
    const tokens = randomTokens(120, 5);
    const columns = 2000;
    const large = { tokens, targetTokens: randomTokens(120 * columns, 6), targetsPerToken: columns };
    const engine = await openEngine(6 * MEBIBYTE);
    closers.push(() => engine.close());
    const weightsAfter = async (adapterId: string, disturb: () => Promise<void>) => {
      await engine.createAdapter(adapterId, MODEL, lora);
      await engine.forwardBackward(crossEntropy(adapterId, small));
      await disturb();
      await engine.forwardBackward(crossEntropy(adapterId, small));
      await engine.optimStep(adapterId, adam);
      const { tensors } = await engine.exportAdapter(adapterId, { optimizer: true });
      return Object.values(tensors).map(({ data }) => data);
    };
    const expected = await weightsAfter("undisturbed", async () => {});
    const weights = await weightsAfter("disturbed", async () => {
      const refused = engine.forwardBackward(crossEntropy("disturbed", [...small, large]));
      await expect(refused).rejects.toThrow(EngineInputError);
      await expect(refused).rejects.toThrow(
        /^no room to train on \d+ tokens at once \(data\[2\] has 120\): the GPU has \d+ of 6 MiB left, not \d+$/,
      );
    });
    for (const [index, values] of weights.entries())
      expect(firstBitDifference(values, expected[index]!)).toBeNull();
  });

  it("bounds the context, which the model's description says", async () => {
    const contextOf = async (memoryBytes: number) => {
      const engine = await openEngine(memoryBytes);
      closers.push(() => engine.close());
      return (await engine.models())[0]!.maxContextLength;
    };
    expect(await contextOf(256 * MEBIBYTE)).toBe(128);
    const little = await contextOf(MEBIBYTE / 16);
    expect(little).toBeGreaterThan(0);
    expect(little).toBeLessThan(128);
  });
});

describe("where a card is missing", () => {
  it("a command that asks for it says so", async () => {
    const missing = await run(["quickstart", "--no-dashboard", "--device", "gpu"], {
      env: { VK_DRIVER_FILES: "/nonexistent.json" },
    });
    expect(missing.code).toBe(1);
    expect(missing.stderr).toContain(
      "no GPU can be used: no GPU was found, or its driver (Vulkan, Metal, D3D12) is missing",
    );
  });

  it("a program that stands in for it is taken only when asked for", async () => {
    const kernels = await openKernels();
    await kernels.close();
    const chosen = await chooseDevice({ parameters: MIN_GPU_PARAMETERS }, () => openMachineGpu({}));
    expect(chosen).toEqual({ note: expect.stringMatching(/^there is no GPU, only Swiftshader/) });
    const asked = await chooseDevice({ device: "gpu", parameters: 1 }, () => openMachineGpu({}));
    expect(asked).toMatchObject({
      gpu: { info: { isSoftware: true } },
      note: expect.stringContaining("slowly"),
    });
    asked.gpu!.device.destroy();
    await expect(
      chooseDevice({ precision: "fast", parameters: 1 }, () => openMachineGpu({ precision: "fast" })),
    ).rejects.toThrow(/cannot compute with precision fast: it lacks chromium-experimental-subgroup-matrix/);
  });
});
