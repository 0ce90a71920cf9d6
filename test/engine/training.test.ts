import { describe, expect, it } from "vitest";
import type { Engine } from "../../src/local/engine/engine.js";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { LoraAdapter } from "../../src/local/engine/training/adapter.js";
import { trainingPass } from "../../src/local/engine/training/training-pass.js";
import {
  adam,
  crossEntropy,
  enginesForTests,
  lora,
  randomTokens,
  sampleCall,
  trainingData,
} from "./engines.js";
import { loadFixture, relativeError, runPass } from "./golden.js";
import { kernelChoices } from "./kernel-choices.js";
import { createReferenceKernels } from "./reference-kernels.js";

const start = enginesForTests();

/** Adapters whose B is not zero, so that every gradient is there. */
async function warmAdapter(kernels: Kernels, model: string) {
  const adapter = LoraAdapter.create(kernels, await loadFixture(kernels, model), lora);
  await runPass(kernels, adapter, crossEntropy("a", trainingData(4, 1)));
  await adapter.step(adam);
  return adapter;
}

describe.each(kernelChoices)("gradients with $name kernels", ({ create }) => {
  it("are the same bits for one call with 8 datums, two with 4, eight with 1 and any step size", async () => {
    const kernels = await create();
    // Weights that are no round numbers: sums of the others would be exact in any order.
    const data = trainingData(8, 2).map((datum) => ({
      ...datum,
      weights: datum.weights!.map((w) => w * 0.3),
    }));
    const results: Record<string, Float32Array>[] = [];
    const logprobs: Float32Array[][] = [];
    const losses: number[] = [];
    for (const [size, stepTokens] of [
      [8, 1024],
      [4, 1024],
      [1, 1024],
      [8, 1],
      [8, 30],
    ] as const) {
      const adapter = await warmAdapter(kernels, "qwen3");
      const outputs: Float32Array[] = [];
      for (let at = 0; at < 8; at += size) {
        const pass = trainingPass(
          kernels,
          adapter,
          crossEntropy("a", data.slice(at, at + size)),
          () => stepTokens,
        );
        let turn = await pass.next();
        while (!turn.done) turn = await pass.next();
        outputs.push(...turn.value.logprobs);
        if (size === 8) losses.push(turn.value.metrics["loss:sum"]!);
      }
      results.push(await adapter.exportGradients());
      logprobs.push(outputs);
    }
    for (const result of results) expect(result).toEqual(results[0]);
    for (const output of logprobs) expect(output).toEqual(logprobs[0]);
    // Other samples decide how many tokens a step takes; the loss must not tell.
    expect(new Set(losses).size).toBe(1);
    expect(losses).toHaveLength(3);
    expect(Object.values(results[0]!).every((gradient) => gradient.some((value) => value !== 0))).toBe(true);
    await kernels.close();
  });
});

describe.each(["qwen3", "qwen2", "llama"])("a step of %s that does not fit", (model) => {
  it("computes its blocks again on the way back, to the same bits", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const reserve = kernels.reserveScratch.bind(kernels);
    const asked: number[] = [];
    let limit = Number.POSITIVE_INFINITY;
    kernels.reserveScratch = async (length) => {
      asked.push(length);
      if (length > limit) throw new RangeError(`${length} is more than ${limit}`);
      return reserve(length);
    };
    const [longest] = trainingData(6, 3).sort((a, b) => b.tokens.length - a.tokens.length);
    const call = crossEntropy("a", [longest!]);
    const outcome = async () => {
      const adapter = await warmAdapter(kernels, model);
      asked.length = 0;
      const { logprobs, metrics } = await runPass(kernels, adapter, call);
      return { logprobs, metrics, gradients: await adapter.exportGradients() };
    };
    const kept = await outcome();
    expect(asked).toHaveLength(1);
    limit = asked[0]! - 1;
    expect(await outcome()).toEqual(kept);
    const [all, recomputed] = asked as [number, number];
    expect(recomputed).toBeLessThan(0.8 * all);
    await kernels.close();
  });
});

describe("a device whose buffers are small", () => {
  it("trains in shorter steps to the same bits, and refuses a sequence that fits into none", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const call = crossEntropy("a", trainingData(6, 3));
    const gradients = async () => {
      const adapter = await warmAdapter(kernels, "qwen3");
      await runPass(kernels, adapter, call);
      return adapter.exportGradients();
    };
    const expected = await gradients();
    const limited = Object.assign(kernels, { maxBufferBytes: 1 << 15 });
    expect(await gradients()).toEqual(expected);
    limited.maxBufferBytes = 1 << 10;
    await expect(gradients()).rejects.toThrow(/no room to train on \d+ tokens at once .* in one piece/);
    await kernels.close();
  });
});

describe("training", () => {
  it("does not depend on the number of threads", async () => {
    const runs = [];
    for (const threads of [1, 2, 3]) {
      const engine = await start({ threads });
      await engine.createAdapter("a", "llama", lora);
      for (let step = 0; step < 3; step++) {
        await engine.forwardBackward(crossEntropy("a", trainingData(5, step)));
        await engine.optimStep("a", adam);
      }
      runs.push(await engine.exportAdapter("a", { optimizer: true }));
    }
    expect(runs[1]).toEqual(runs[0]);
    expect(runs[2]).toEqual(runs[0]);
  });

  it("is the same with a hundred other adapters training and sampling beside it", async () => {
    const alone = await start();
    const crowd = await start();
    const run = async (engine: Engine) => {
      await engine.createAdapter("a", "qwen3", lora);
      const calls = [];
      for (let step = 0; step < 4; step++) {
        calls.push(engine.forwardBackward(crossEntropy("a", trainingData(5, step))));
        calls.push(engine.optimStep("a", adam));
      }
      await Promise.all(calls);
      return engine.exportAdapter("a", { optimizer: true });
    };
    const expected = await run(alone);
    const others = Array.from({ length: 100 }, async (_, index) => {
      const id = `other-${index}`;
      await crowd.createAdapter(id, "qwen3", { ...lora, seed: index });
      const calls = [
        crowd.forwardBackward(crossEntropy(id, trainingData(2, index))),
        crowd.optimStep(id, adam),
        crowd.cloneAdapter(id, `${id}-sampler`),
        crowd.sample(sampleCall(randomTokens(9, index), { adapterId: `${id}-sampler` })),
      ];
      return Promise.all(calls);
    });
    const actual = await run(crowd);
    await Promise.all(others);
    expect(actual).toEqual(expected);
  });

  it("goes on from a saved state for 20 steps as if it had never stopped", async () => {
    const engine = await start();
    await engine.createAdapter("a", "qwen3", lora);
    const step = async (id: string, index: number) => {
      const { logprobs } = await engine.forwardBackward(crossEntropy(id, trainingData(3, index)));
      await engine.optimStep(id, adam);
      return logprobs;
    };
    for (let index = 0; index < 5; index++) await step("a", index);
    const saved = structuredClone(await engine.exportAdapter("a", { optimizer: true }));
    expect(saved.optimizer?.step).toBe(5);
    const other = await start({ threads: 2 });
    await other.importAdapter("b", "qwen3", saved, { optimizer: true });
    for (let index = 5; index < 25; index++) {
      const straight = await step("a", index);
      const { logprobs } = await other.forwardBackward(crossEntropy("b", trainingData(3, index)));
      await other.optimStep("b", adam);
      expect(logprobs).toEqual(straight);
    }
    const end = await engine.exportAdapter("a", { optimizer: true });
    expect(await other.exportAdapter("b", { optimizer: true })).toEqual(end);
    await other.importAdapter("c", "qwen3", saved, { optimizer: false });
    expect((await other.exportAdapter("c", { optimizer: true })).optimizer?.step).toBe(0);
  });

  it("adds up gradients over calls until the step, and forward calls add nothing", async () => {
    const engine = await start();
    const data = trainingData(6, 9);
    for (const id of ["one", "two"]) await engine.createAdapter(id, "qwen2", lora);
    await engine.forwardBackward(crossEntropy("one", data));
    await engine.forwardBackward(crossEntropy("two", data.slice(0, 2)));
    await engine.forwardBackward(crossEntropy("two", data, true));
    await engine.forwardBackward(crossEntropy("two", data.slice(2)));
    const first = await engine.optimStep("one", adam);
    const second = await engine.optimStep("two", adam);
    expect(second).toEqual(first);
    expect(first.metrics["gradNorm:mean"]).toBeGreaterThan(0);
    const [one, two] = [
      await engine.exportAdapter("one", { optimizer: true }),
      await engine.exportAdapter("two", { optimizer: true }),
    ];
    expect(two).toEqual(one);
  });

  it("changes nothing when the adapter is new, and only what lora_config names afterwards", async () => {
    const engine = await start();
    const prompt = randomTokens(12, 1);
    await engine.createAdapter("new", "qwen3", lora);
    const logprobs = async (adapterId: string | undefined) =>
      (await engine.sample(sampleCall(prompt, { adapterId, promptLogprobs: true, maxTokens: 0 })))
        .promptLogprobs;
    expect(await logprobs("new")).toEqual(await logprobs(undefined));
    for (const [trains, pattern] of [
      ["trainAttn", /self_attn\.[qkvo]_proj/],
      ["trainMlp", /mlp\.(gate|up|down)_proj/],
      ["trainUnembed", /lm_head/],
    ] as const) {
      const settings = { ...lora, trainAttn: false, trainMlp: false, trainUnembed: false, [trains]: true };
      await engine.createAdapter(trains, "qwen3", settings);
      await engine.forwardBackward(crossEntropy(trains, trainingData(4, 1)));
      await engine.optimStep(trains, adam);
      const { tensors } = await engine.exportAdapter(trains, { optimizer: false });
      expect(Object.keys(tensors).every((name) => pattern.test(name))).toBe(true);
      const moved = Object.entries(tensors).filter(([name]) => name.includes("lora_B"));
      expect(moved.length).toBeGreaterThan(0);
      for (const [, { data }] of moved) expect(data.some((value) => value !== 0)).toBe(true);
      expect(await logprobs(trains)).not.toEqual(await logprobs(undefined));
    }
  });

  it("starts adapters from their seed alone, uniformly within 1 / sqrt(inputs)", async () => {
    const engine = await start();
    for (const [id, seed] of [
      ["x", 1],
      ["y", 1],
      ["z", 2],
    ] as const) {
      await engine.createAdapter(id, "qwen3", { ...lora, rank: 32, seed });
    }
    const tensorsOf = async (id: string) => (await engine.exportAdapter(id, { optimizer: false })).tensors;
    const [x, y, z] = [await tensorsOf("x"), await tensorsOf("y"), await tensorsOf("z")];
    expect(y).toEqual(x);
    expect(z).not.toEqual(x);
    const name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    expect(x[name]!.shape).toEqual([32, 16]);
    const values = [...x[name]!.data];
    expect(Math.max(...values)).toBeLessThanOrEqual(0.25);
    expect(Math.min(...values)).toBeGreaterThanOrEqual(-0.25);
    const variance = values.reduce((sum, value) => sum + value * value, 0) / values.length;
    expect(variance).toBeCloseTo(0.25 ** 2 / 3, 2);
  });

  it("learns: the loss of a batch falls", async () => {
    const engine = await start();
    await engine.createAdapter("a", "qwen3", { ...lora, rank: 8 });
    const losses: number[] = [];
    for (let step = 0; step < 30; step++) {
      const { metrics } = await engine.forwardBackward(crossEntropy("a", trainingData(4, 3)));
      losses.push(metrics["loss:sum"]!);
      await engine.optimStep("a", { ...adam, learningRate: 0.03, gradClipNorm: 0 });
    }
    expect(losses.at(-1)!).toBeLessThan(losses[0]! / 3);
  });

  it("takes the memory of its steps in advance, and refuses without a change where there is none", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const adapter = await warmAdapter(kernels, "qwen3");
    const { scratch, reserveScratch } = kernels;
    const used: number[] = [];
    let reserved = 0;
    kernels.scratch = (length) => {
      const buffer = scratch.call(kernels, length);
      used.push(kernels.mark());
      return buffer;
    };
    kernels.reserveScratch = async (length) => {
      reserved = 4 * length;
      if (length > 6e4) throw new RangeError("the engine needs more memory");
      await reserveScratch.call(kernels, length);
    };
    for (const targetsPerToken of [1, 3]) {
      const data = trainingData(3, 2).map(({ tokens }) => {
        const targetTokens = new Int32Array(tokens.length * targetsPerToken).fill(3);
        return {
          tokens,
          targetTokens,
          targetsPerToken,
          weights: new Float32Array(targetTokens.length).fill(1),
        };
      });
      // Rows without a gradient are left out of the others, which takes more.
      data[0]!.weights.fill(0, 0, targetsPerToken);
      await runPass(kernels, adapter, crossEntropy("a", data));
      const most = Math.max(...used.splice(0));
      expect(most).toBeLessThanOrEqual(reserved);
      expect(most).toBeGreaterThan(0.5 * reserved);
    }
    const before = await adapter.exportGradients();
    const long = { tokens: randomTokens(120, 1), targetTokens: randomTokens(120, 2), targetsPerToken: 1 };
    const data = [...trainingData(2, 1), { ...long, weights: new Float32Array(120).fill(1) }];
    await expect(runPass(kernels, adapter, crossEntropy("a", data))).rejects.toThrow(
      /no room to train on \d+ tokens at once \(data\[2\] has 120\): the engine needs more memory/,
    );
    expect(await adapter.exportGradients()).toEqual(before);
    await kernels.close();
  });

  it("has its gradients before it takes the memory of its steps, which it makes sure of before each of them", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const adapter = LoraAdapter.create(kernels, await loadFixture(kernels, "qwen3"), lora);
    const calls: string[] = [];
    for (const name of ["alloc", "reserveScratch"] as const) {
      const call = kernels[name].bind(kernels) as (...args: unknown[]) => never;
      kernels[name] = (...args: unknown[]) => {
        calls.push(name);
        return call(...args);
      };
    }
    const pass = trainingPass(kernels, adapter, crossEntropy("a", trainingData(3, 2)), () => 1);
    while (!(await pass.next()).done) calls.push("others");
    expect(calls[0]).toBe("alloc");
    expect(calls.slice(calls.lastIndexOf("alloc") + 1)).toEqual([
      "reserveScratch",
      ...["others", "reserveScratch"],
      ...["others", "reserveScratch"],
    ]);
    await kernels.close();
  });

  it("leaves weights without a gradient alone when eps is 0", async () => {
    const engine = await start();
    await engine.createAdapter("a", "qwen3", lora);
    const before = await engine.exportAdapter("a", { optimizer: false });
    await engine.forwardBackward(crossEntropy("a", trainingData(2, 3)));
    await engine.optimStep("a", { ...adam, eps: 0, weightDecay: 0 });
    const after = await engine.exportAdapter("a", { optimizer: false });
    for (const [name, { data }] of Object.entries(after.tensors)) {
      // B is zero at first, so that A has no gradient, and every step of B is as long as the learning rate.
      if (name.includes("lora_A")) expect(data, name).toEqual(before.tensors[name]!.data);
      else expect(Math.max(...data.map(Math.abs)), name).toBeCloseTo(adam.learningRate, 6);
    }
  });

  it("agrees with the plain JavaScript kernels", async () => {
    const gradients = [];
    for (const kernels of [createReferenceKernels(), createWasmKernels({ threads: 1 })]) {
      const adapter = await warmAdapter(kernels, "llama");
      await runPass(kernels, adapter, crossEntropy("a", trainingData(5, 8)));
      gradients.push(await adapter.exportGradients());
      await kernels.close();
    }
    for (const [name, expected] of Object.entries(gradients[0]!)) {
      expect(relativeError(gradients[1]![name]!, expected), name).toBeLessThan(1e-4);
    }
  });

  it("does not starve sampling while it trains, nor the other way round", async () => {
    const engine = await start();
    await engine.createAdapter("a", "qwen3", lora);
    const order: string[] = [];
    const data = trainingData(40, 1).flatMap((datum) => Array.from({ length: 10 }, () => datum));
    const training = engine.forwardBackward(crossEntropy("a", data)).then(() => order.push("training"));
    const quick = engine
      .sample(sampleCall(randomTokens(5, 1), { maxTokens: 3 }))
      .then(() => order.push("quick"));
    const endless = engine
      .sample(sampleCall(randomTokens(5, 1), { maxTokens: 120, numSamples: 400 }))
      .then(() => order.push("endless"));
    await Promise.all([training, quick, endless]);
    expect(order).toEqual(["quick", "training", "endless"]);
  });

  it("frees what removed adapters held", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const engine = await start({ kernels });
    const cycle = async () => {
      await engine.createAdapter("a", "qwen3", lora);
      await engine.forwardBackward(crossEntropy("a", trainingData(2, 1)));
      await engine.optimStep("a", adam);
      await engine.cloneAdapter("a", "b");
      await engine.sample(sampleCall(randomTokens(5, 1), { adapterId: "b" }));
      await engine.removeAdapter("a");
      await engine.removeAdapter("b");
    };
    await cycle();
    const before = kernels.allocatedBytes;
    for (let i = 0; i < 5; i++) await cycle();
    expect(kernels.allocatedBytes).toBe(before);
    await expect(engine.exportAdapter("a", { optimizer: false })).rejects.toThrow("there is no adapter a");
  });
});
