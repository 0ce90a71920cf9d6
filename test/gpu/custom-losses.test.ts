import { afterAll, describe, expect, it } from "vitest";
import type { ForwardBackwardCall } from "../../src/local/engine/engine.js";
import { exp, mean, mul, neg, sub, sum } from "../../src/training/autograd/index.js";
import { traceLoss } from "../../src/training/tracing/trace-loss.js";
import { adam, crossEntropy, lora, openEngine, trainingData } from "../engine/engines.js";
import { openKernels } from "./gpus.js";

const kernels = await openKernels();
const engines = await Promise.all([openEngine(), openEngine({ kernels })]);
afterAll(() => Promise.all(engines.map((engine) => engine.close())));

const inputs = [
  { name: "logprobs", rank: 1 },
  { name: "sampled", rank: 1 },
] as const;
const graph = traceLoss(
  (logprobs, { sampled }) => {
    const ratio = exp(sub(logprobs, sampled!));
    return { loss: neg(sum(mul(ratio, sampled!))), metrics: { "custom/ratio:mean": mean(ratio) } };
  },
  inputs,
  (name) => name,
);

const data = trainingData(5, 3);
const sampled = data.map(({ tokens }) => Float64Array.from(tokens, (token) => -4 - token / 100));
const custom: ForwardBackwardCall = {
  ...crossEntropy("a", data),
  lossFn: "custom",
  customLoss: { inputs, graph },
  data: data.map(({ weights: _, ...datum }, index) => {
    const values = sampled[index]!;
    return { ...datum, customInputs: [{ values, shape: [values.length], dtype: "float32" }] };
  }),
};
const gspo: ForwardBackwardCall = {
  ...crossEntropy("a", data),
  lossFn: "gspo",
  data: data.map((datum, index) => ({
    ...datum,
    logprobs: Float32Array.from(sampled[index]!),
    advantages: Float32Array.from(datum.tokens, (token) => (token % 3) - 1),
  })),
};

describe("losses over sequences on the GPU", () => {
  it.each([
    ["a stored loss", custom],
    ["gspo", gspo],
  ])("train as on the CPU: %s", async (name, call) => {
    const adapterId = name;
    const [cpu, gpu] = await Promise.all(
      engines.map(async (engine) => {
        await engine.createAdapter(adapterId, "qwen3", lora);
        const passes = [];
        for (let step = 0; step < 3; step++) {
          passes.push(await engine.forwardBackward({ ...call, adapterId }));
          await engine.optimStep(adapterId, adam);
        }
        return passes;
      }),
    );
    for (const [step, { logprobs, metrics }] of cpu!.entries()) {
      for (const [key, value] of Object.entries(metrics))
        expect(Math.abs(gpu![step]!.metrics[key]! - value)).toBeLessThan(1e-3 * Math.max(1, Math.abs(value)));
      for (const [index, row] of logprobs.entries())
        for (const [at, value] of row.entries())
          expect(Math.abs(gpu![step]!.logprobs[index]![at]! - value)).toBeLessThan(1e-3);
    }
    const [first, last] = [cpu![0]!, cpu!.at(-1)!];
    expect(last.metrics["loss:sum"]).not.toBe(first.metrics["loss:sum"]);
  });
});
