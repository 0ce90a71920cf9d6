import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { RestClient, ServiceClient } from "../../src/index.js";
import type { AdamSettings, ForwardBackwardCall } from "../../src/local/engine/engine.js";
import { runWithRecovery } from "../../src/training/index.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { passBody, startFake, stepBody } from "./raw-client.js";

/** Fails once, in the middle of what it was asked to do. */
class FailingEngine extends FakeEngine {
  failNext: "pass" | "step" | undefined;
  gradNorm: number | undefined;

  override async forwardBackward(call: ForwardBackwardCall) {
    const result = await super.forwardBackward(call);
    this.#failIf("pass");
    return result;
  }

  override async optimStep(adapterId: string, adam: AdamSettings) {
    const { metrics } = await super.optimStep(adapterId, adam);
    this.#failIf("step");
    return { metrics: this.gradNorm === undefined ? metrics : { "grad_norm:mean": this.gradNorm } };
  }

  #failIf(point: "pass" | "step"): void {
    if (this.failNext !== point) return;
    this.failNext = undefined;
    throw new Error("out of memory");
  }
}

describe("a run whose engine failed in the middle of a change", () => {
  async function open() {
    const engine = new FailingEngine();
    const { backend, client } = await startFake({ engine });
    onTestFinished(() => backend.close());
    const { modelId } = await client.openModel();
    const isCorrupted = async () => (await client.get(`/training_runs/${modelId}`)).body["corrupted"];
    return { engine, backend, client, modelId, isCorrupted };
  }

  it.each(["pass", "step"] as const)("is corrupted, and goes no further: %s", async (point) => {
    const { engine, client, modelId, isCorrupted } = await open();
    await client.result(client.ok("/save_weights", { model_id: modelId, seq_id: 1, path: "good" }));
    expect(await isCorrupted()).toBe(false);
    engine.failNext = point;
    const failing =
      point === "pass"
        ? await client.ok("/forward_backward", passBody(modelId, 2, 1))
        : await client.ok("/optim_step", stepBody(modelId, 2));
    expect(await client.result(failing)).toEqual({ error: "out of memory", category: "server" });
    expect(await isCorrupted()).toBe(true);
    engine.calls.length = 0;
    const later = [
      await client.ok("/optim_step", stepBody(modelId, 3)),
      await client.ok("/save_weights", { model_id: modelId, seq_id: 4, path: "bad" }),
    ];
    for (const accepted of later) {
      expect(await client.result(accepted)).toEqual({
        category: "server",
        error: expect.stringMatching(/is corrupted \(.* failed: out of memory\); create a new one/),
      });
    }
    expect(engine.calls).toEqual([]);
    expect((await client.get("/checkpoints")).body["checkpoints"]).toHaveLength(1);
    expect(await client.result(client.ok("/unload_model", { model_id: modelId }))).toMatchObject({
      type: "unload_model",
    });
  });

  it("is not corrupted by a forward pass, which changes nothing, nor by a request that was wrong", async () => {
    const { engine, client, modelId, isCorrupted } = await open();
    engine.failNext = "pass";
    const { forward_backward_input: input, ...rest } = passBody(modelId, 1, 1);
    expect(await client.result(client.ok("/forward", { ...rest, forward_input: input }))).toMatchObject({
      category: "server",
    });
    expect(await client.result(client.ok("/forward_backward", passBody(modelId, 2, 99)))).toMatchObject({
      category: "user",
    });
    expect(await isCorrupted()).toBe(false);
    expect(await client.result(client.ok("/optim_step", stepBody(modelId, 3)))).toHaveProperty("metrics");
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])("is corrupted by gradients of norm %s", async (norm) => {
    const { engine, client, modelId, isCorrupted } = await open();
    engine.gradNorm = norm;
    const step = await client.ok("/optim_step", stepBody(modelId, 1));
    expect(await client.result(step)).toEqual({
      category: "user",
      error: expect.stringMatching(/not finite \(norm (NaN|Infinity)\).*smaller learning rate/),
    });
    expect(await isCorrupted()).toBe(true);
  });

  it("is restored from its last checkpoint by runWithRecovery, as if nothing had happened", async () => {
    const { engine, backend } = await open();
    const datum = {
      modelInput: [1, 2, 3],
      lossFnInputs: { targetTokens: [2, 3, 4], weights: [1, 1, 1] },
    };
    const run = async (failAt: number | undefined) => {
      const failures: string[] = [];
      let left = failAt;
      const { checkpoint, restores } = await runWithRecovery({
        service: () => new ServiceClient({ ...backend }),
        start: (service) => service.createLoraTrainingClient({ baseModel: fakeModel.name, rank: 4, seed: 0 }),
        steps: 6,
        checkpointEvery: 2,
        policy: { backoffMs: 1 },
        onEvent: (event) => {
          if (event.type === "failed") failures.push(event.reason);
        },
        step: async (training, step) => {
          if (step === left) {
            engine.failNext = "step";
            left = undefined;
          }
          await training.forwardBackward([datum], "cross_entropy");
          await training.optimStep({ learningRate: 0.1 });
        },
      });
      const file = join(
        backend.dataDir,
        "runs",
        checkpoint.statePath.split("/")[2]!.replaceAll(":", "_"),
        "checkpoints/weights",
        checkpoint.statePath.split("/")[4]!,
        "adapter_model.safetensors",
      );
      return { failures, restores, weights: await readFile(file) };
    };
    const disturbed = await run(3);
    expect(disturbed.failures).toEqual([expect.stringMatching(/^(corrupted|server)$/)]);
    expect(disturbed.restores).toBe(1);
    const { items } = await new RestClient(backend).listTrainingRuns();
    expect(items.filter((item) => item.corrupted)).toHaveLength(1);
    expect(disturbed.weights.equals((await run(undefined)).weights)).toBe(true);
  });
});
