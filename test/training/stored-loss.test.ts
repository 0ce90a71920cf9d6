import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CustomLossHandle, PerDatumLossFn, ServiceClient, TrainingClient } from "../../src/index.js";
import {
  abs,
  add,
  clamp,
  concat,
  cumulativeSum,
  div,
  exp,
  gather,
  greater,
  logSigmoid,
  logSumExp,
  matmul,
  maximum,
  mean,
  minimum,
  mul,
  neg,
  pow,
  reshape,
  slice,
  softmax,
  softplus,
  stack,
  stopGradient,
  sub,
  sum,
  transpose,
  where,
} from "../../src/training/autograd/index.js";
import { startTinyBackend, TINY } from "../support/tiny-backend.js";

const COUNT = 12;
const example = (first: number, columns = 1) => {
  const modelInput = Array.from({ length: COUNT }, (_, index) => (first * 7 + index * 3) % 50);
  const wide = (value: (at: number) => number) =>
    Float32Array.from({ length: COUNT * columns }, (_, at) => value(at));
  const shape = columns === 1 ? [COUNT] : [COUNT, columns];
  const targetTokens = Int32Array.from({ length: COUNT * columns }, (_, at) => (at * 5 + first) % 50);
  return {
    modelInput,
    lossFnInputs: {
      targetTokens: { data: targetTokens, dtype: "int64" as const, shape },
      advantages: { data: wide((at) => ((at + first) % 3) - 1), dtype: "float32" as const, shape },
      samplingLogprobs: {
        data: wide((at) => -3.5 - ((at * first) % 4) / 8),
        dtype: "float32" as const,
        shape,
      },
      mask: { data: wide((at) => Number(at >= 4)), dtype: "float32" as const, shape },
      scale: { data: Float32Array.of(0.5 + first / 4), dtype: "float32" as const, shape: [] },
      // No loss below reads it: data may have inputs for other uses.
      note: Float32Array.of(1, 2),
    },
  };
};

const ppo: PerDatumLossFn<"advantages" | "samplingLogprobs" | "mask"> = (
  logprobs,
  { advantages, samplingLogprobs, mask },
) => {
  const ratio = exp(sub(logprobs, samplingLogprobs));
  const objective = minimum(mul(ratio, advantages), mul(clamp(ratio, { min: 0.8, max: 1.2 }), advantages));
  const isClipped = mul(greater(abs(sub(ratio, 1)), 0.2), mask);
  return {
    loss: neg(div(sum(where(mask, objective, 0)), maximum(sum(mask), 1))),
    metrics: { "custom/clipped:sum": sum(isClipped), "custom/ratio:mean": mean(ratio) },
  };
};

/** Uses every operation that can be traced. */
const everything: PerDatumLossFn<"mask" | "scale"> = (logprobs, { mask, scale }) => {
  const flat = reshape(logprobs, [-1]);
  const matrix = reshape(flat, [3, 4]);
  const picked = gather(flat, mask);
  const parts = [
    sum(mul(softmax(matrix), matrix)),
    mean(matmul(matrix, transpose(matrix))),
    logSumExp(matrix),
    sum(logSumExp(matrix, { axis: 1, keepDims: true })),
    sum(slice(matrix, 1, 3, { axis: -1 })),
    sum(pow(cumulativeSum(flat), 2)),
    mean(concat([flat, picked, mask])),
    mul(scale, logSigmoid(sum(flat))),
    softplus(mean(sub(flat, stopGradient(flat)))),
    sum(mul(sum(matrix, { axis: [0], keepDims: true }), mean(matrix, { axis: 0 }))),
  ];
  const loss = sum(stack(parts));
  return { loss, metrics: { "custom/first:mean": add(parts[0]!, 1) } };
};

const distillation: PerDatumLossFn<"samplingLogprobs"> = (logprobs, { samplingLogprobs }) => {
  const student = sub(logprobs, logSumExp(logprobs, { axis: -1, keepDims: true }));
  const teacher = sub(samplingLogprobs, logSumExp(samplingLogprobs, { axis: -1, keepDims: true }));
  return { loss: sum(mul(exp(student), sub(student, teacher))) };
};

describe("a loss of createCustomLoss", () => {
  const backends: { service: ServiceClient; close: () => Promise<void> }[] = [];
  beforeAll(async () => {
    backends.push(await startTinyBackend(), await startTinyBackend({ customLosses: false }));
  });
  afterAll(async () => {
    for (const { close } of backends) await close();
  });

  async function logprobsOf(training: TrainingClient): Promise<number[]> {
    const { modelInput, lossFnInputs } = example(1);
    const data = [{ modelInput, lossFnInputs: { targetTokens: lossFnInputs.targetTokens } }];
    return (await training.forward(data, "cross_entropy")).lossFnOutputs[0]!["logprobs"]!.toArray();
  }

  async function train(
    service: ServiceClient,
    create: (training: TrainingClient) => Promise<CustomLossHandle>,
    columns: number,
  ) {
    const training = await service.createLoraTrainingClient({ baseModel: TINY, rank: 4, seed: 3 });
    const handle = await create(training);
    const metrics: Readonly<Record<string, number>>[] = [];
    for (let step = 0; step < 3; step++) {
      const pass = training.forwardBackwardCustom(
        [example(step, columns), example(step + 1, columns)],
        handle,
      );
      const update = training.optimStep({ learningRate: 1e-2 });
      metrics.push((await pass).metrics);
      await update;
    }
    return { handle, metrics, logprobs: await logprobsOf(training) };
  }

  it.each([
    ["PPO", ppo, { advantages: 1, samplingLogprobs: 1, mask: 1 }, 1],
    ["every operation", everything, { mask: 1, scale: 0 }, 1],
    ["distillation of likeliest tokens", distillation, { logprobs: 2, samplingLogprobs: 2 }, 5],
  ] as const)("trains the same on the server and in the client: %s", async (_, lossFn, inputs, columns) => {
    const create = (training: TrainingClient) =>
      training.createCustomLoss(lossFn as PerDatumLossFn, { inputs: inputs as Record<string, 0 | 1 | 2> });
    const [stored, inClient] = await Promise.all(
      backends.map(({ service }) => train(service, create, columns)),
    );
    expect([typeof stored!.handle.lossId, inClient!.handle.lossId]).toEqual(["string", undefined]);
    for (const [step, metrics] of stored!.metrics.entries()) {
      expect(metrics).not.toHaveProperty("surrogate_loss:sum");
      const { "surrogate_loss:sum": _surrogate, ...others } = inClient!.metrics[step]!;
      expect(Object.keys(metrics).sort()).toEqual(Object.keys(others).sort());
      for (const [name, value] of Object.entries(others)) expect(metrics[name]).toBeCloseTo(value, 9);
    }
    // Both send the engine the same gradients, so that the weights are the same bits.
    expect(stored!.logprobs).toEqual(inClient!.logprobs);
  });

  it("named gspo is the documented one, as the official package traces it", async () => {
    const { service } = backends[0]!;
    const { cases } = JSON.parse(
      readFileSync(new URL("../fixtures/losses/custom-graphs.json", import.meta.url), "utf8"),
    ) as { cases: { name: string; inputs: object[]; graph: object }[] };
    const { inputs, graph } = cases.find(({ name }) => name === "gspo")!;
    const sessionId = await service.getSessionId();
    const body = { session_id: sessionId, custom_loss_seq_id: 1000, name: "gspo", inputs, graph };
    await service.post("/api/v1/create_custom_loss", { body });
    const config = { lossId: `${sessionId}:loss:1000` };
    const data = [example(1), example(2)];
    const named = data.map(({ modelInput, lossFnInputs }) => {
      const { targetTokens, advantages, samplingLogprobs: logprobs, mask: sequenceRatioMask } = lossFnInputs;
      return { modelInput, lossFnInputs: { targetTokens, advantages, logprobs, sequenceRatioMask } };
    });
    const trained = [];
    for (const pass of [
      (training: TrainingClient) => training.forwardBackward(data, "custom", { config }),
      (training: TrainingClient) => training.forwardBackward(named, "gspo"),
    ]) {
      const training = await service.createLoraTrainingClient({ baseModel: TINY, rank: 4, seed: 3 });
      const { metrics } = await pass(training);
      await training.optimStep({ learningRate: 1e-2 });
      trained.push({ loss: metrics["loss:sum"]!, logprobs: await logprobsOf(training) });
    }
    const [documented, own] = trained;
    expect(own!.loss).toBeCloseTo(documented!.loss, 9);
    for (const [at, value] of own!.logprobs.entries())
      expect(value).toBeCloseTo(documented!.logprobs[at]!, 5);
  });

  it("is created once in a session, and is of that session only", async () => {
    const { service } = backends[0]!;
    const inputs = { advantages: 1, samplingLogprobs: 1, mask: 1 } as const;
    const [first, again, other] = [
      await service.createCustomLoss(ppo, { inputs }),
      await service.createCustomLoss(ppo, { inputs }),
      await service.createCustomLoss((logprobs) => ({ loss: mean(logprobs) })),
    ];
    expect(again).toBe(first);
    expect(other.lossId).not.toBe(first.lossId);
    await using neighbour = service.clone();
    const training = await neighbour.createLoraTrainingClient({ baseModel: TINY, rank: 4 });
    expect(() => training.forwardBackwardCustom([example(1)], first)).toThrow(/created in another session/);
    const pass = training.forwardBackward([example(1)], "custom", { config: { lossId: first.lossId! } });
    await expect(pass).rejects.toThrow(/is not a custom loss of this session/);
  });

  it("leaves no part of a batch that fails in its middle", async () => {
    const { service } = backends[0]!;
    const training = await service.createLoraTrainingClient({ baseModel: TINY, rank: 4, seed: 3 });
    const same = await service.createLoraTrainingClient({ baseModel: TINY, rank: 4, seed: 3 });
    const inputs = { mask: 1 } as const;
    const loss = await service.createCustomLoss(
      (logprobs, { mask }) => ({ loss: sum(mul(logprobs, mask)) }),
      { inputs },
    );
    const long = example(2);
    const wrong = { ...long, lossFnInputs: { ...long.lossFnInputs, mask: Float32Array.of(1, 2) } };
    for (const client of [training, same]) await client.forwardBackwardCustom([example(1)], loss);
    const failed = training.forwardBackwardCustom([example(1), example(3), wrong], loss);
    await expect(failed).rejects.toThrow(/data\[2\]: node mul \(operator\.mul\): .*cannot be broadcast/);
    for (const client of [training, same]) await client.optimStep({ learningRate: 1e-2 });
    expect(await logprobsOf(training)).toEqual(await logprobsOf(same));
  });

  it("is refused with data that lack an input or have it in another rank", async () => {
    const training = await backends[1]!.service.createLoraTrainingClient({ baseModel: TINY, rank: 4 });
    const handle = await training.createCustomLoss(ppo, {
      inputs: { advantages: 1, samplingLogprobs: 1, mask: 1 },
    });
    const { mask: _, ...others } = example(1).lossFnInputs;
    const lacking = { ...example(1), lossFnInputs: others };
    expect(() => training.forwardBackwardCustom([example(1), lacking], handle)).toThrow(
      "data[1].lossFnInputs.mask is missing: the loss ppo reads it",
    );
    expect(() => training.forwardBackwardCustom([example(1, 3)], handle)).toThrow(
      /data\[0\]\.lossFnInputs\.targetTokens must have rank 1/,
    );
  });

  const refused: readonly (readonly [string, PerDatumLossFn, RegExp])[] = [
    ["values that are read", (x) => ({ loss: mul(x, x.item()) }), /reads item of a tensor/],
    [
      "a branch on a shape",
      (x) => (x.shape.length > 1 ? { loss: x } : { loss: sum(x) }),
      /reads shape of a tensor/,
    ],
    [
      "a captured tensor",
      (x) => ({ loss: sum(mul(x, [1, 2, 3])) }),
      /captures a tensor or a list of numbers/,
    ],
    ["a loss that is no tensor", () => ({ loss: 1 }) as never, /must return \{ loss, metrics\? \}/],
    ["a promise", (async (x: never) => ({ loss: sum(x) })) as never, /at once/],
    [
      "a metric by another name",
      (x) => ({ loss: sum(x), metrics: { x: sum(x) } }),
      /must be named custom\/NAME:sum/,
    ],
    [
      "a metric that is a number",
      (x) => ({ loss: sum(x), metrics: { "custom/x:sum": 1 as never } }),
      /must be a tensor/,
    ],
    ["a variable", (x) => ({ loss: sum(stack([x, new Float64Array(2)])) }), /captures a tensor/],
  ];
  it.each(refused)("cannot have %s", async (_, lossFn, message) => {
    await expect(backends[1]!.service.createCustomLoss(lossFn)).rejects.toThrow(message);
  });

  it("names an input that is wrong", async () => {
    const { service } = backends[1]!;
    const create = (inputs: object) =>
      service.createCustomLoss((x) => ({ loss: sum(x) }), { inputs: inputs as Record<never, 0> });
    await expect(create({ mask: 3 })).rejects.toThrow("inputs.mask must be the rank 0, 1 or 2, got 3");
    await expect(create({ logprobs: 0 })).rejects.toThrow("inputs.logprobs must be the rank 1 or 2");
    await expect(create({ ref_logprobs: 1 })).rejects.toThrow(
      /inputs\.ref_logprobs must be a name in camelCase/,
    );
  });
});
