import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  type Datum,
  type ForwardBackwardOutput,
  TensorData,
  type TensorLike,
  type TrainingClient,
} from "../../src/index.js";
import { exp, log, mean, mul, stack, stopGradient, sum, tensor } from "../../src/training/autograd/index.js";
import { type CustomLossFn, withGradients } from "../../src/training/custom-loss.js";
import { l2, withRegularizers } from "../../src/training/index.js";
import { decodeForwardBackwardRequest, encodeForwardBackwardOutput } from "../../src/wire/protobuf.js";
import { startTraining, type TestClient } from "../protocol/client.js";
import {
  type ProtocolServer,
  type RecordedRequest,
  startProtocolServer,
} from "../support/protocol-server.js";

const FORWARD_BACKWARD = "POST /api/v1/forward_backward";
const OPTIM = "POST /api/v1/optim_step";

const elements = (shape: readonly number[]) => shape.reduce((product, each) => product * each, 1);

/** Logprobs that tell the datum and position: -(first token) - position / 10. */
function answer(request: RecordedRequest): { bytes: Uint8Array } {
  const { data, forwardOnly } = decodeForwardBackwardRequest(request.body);
  const output: ForwardBackwardOutput = {
    lossFnOutputType: "ArrayRecord",
    lossFnOutputs: data.map((datum) => {
      const { shape } = datum.lossFnInputs["targetTokens"]!;
      const first = datum.modelInput.toInts()[0]!;
      const values = Float32Array.from({ length: elements(shape) }, (_, position) => -first - position / 10);
      return { logprobs: TensorData.from(values, { shape }) };
    }),
    metrics: { "loss:sum": forwardOnly ? 7 : 5, "clock:max": 2, "mine:mean": 1 },
  };
  return { bytes: encodeForwardBackwardOutput(output) };
}

const datum = (first: number, length = 3, extra: Record<string, TensorLike> = {}) => ({
  modelInput: Array.from({ length }, (_, index) => first + index),
  lossFnInputs: { targetTokens: Array.from({ length }, () => 9), ...extra },
});

const sumOfExp: CustomLossFn = (_, logprobs) => ({
  loss: sum(stack(logprobs.map((each) => sum(exp(each))))),
  metrics: { "mine:mean": mean(logprobs[0]!), other: 4 },
});

describe("forwardBackwardCustom", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let training: TrainingClient;
  const start = async (config?: Record<string, unknown>) => {
    ({ client, training } = await startTraining(server, config));
  };
  beforeEach(async () => {
    server = await startProtocolServer();
    server.accept(OPTIM, { json: {} });
    server.accept(FORWARD_BACKWARD, answer);
    await start();
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });
  const passes = () =>
    server.requestsTo(FORWARD_BACKWARD).map((request) => decodeForwardBackwardRequest(request.body));
  /** What was sent, in order: "forward", "backward" or "optim", with its number. */
  const sent = () =>
    server.requests.flatMap((request) => {
      if (`${request.method} ${request.path}` === OPTIM)
        return [`optim ${(request.json() as { seq_id: number }).seq_id}`];
      if (`${request.method} ${request.path}` !== FORWARD_BACKWARD) return [];
      const { forwardOnly, seqId } = decodeForwardBackwardRequest(request.body);
      return [`${forwardOnly ? "forward" : "backward"} ${seqId}`];
    });
  const weightsOf = (sentDatum: Datum | undefined) => sentDatum!.lossFnInputs["weights"]!.toArray();

  it("sends the gradients back as negative weights", async () => {
    const result = await training.forwardBackwardCustom([datum(1), datum(2, 2)], sumOfExp);
    const [forward, backward] = passes();
    expect([forward!.lossFn, forward!.forwardOnly]).toEqual(["cross_entropy", true]);
    expect(forward!.data.map(weightsOf)).toEqual([
      [0, 0, 0],
      [0, 0],
    ]);
    expect([backward!.lossFn, backward!.forwardOnly]).toEqual(["cross_entropy", false]);
    const f32 = Math.fround;
    expect(backward!.data.map(weightsOf)).toEqual([
      [-1, -1.1, -1.2].map((each) => f32(-Math.exp(f32(each)))),
      [-2, -2.1].map((each) => f32(-Math.exp(f32(each)))),
    ]);
    expect(backward!.data.map((each) => each.modelInput.toInts())).toEqual([
      [1, 2, 3],
      [2, 3],
    ]);
    expect(result.lossFnOutputs).toHaveLength(2);
  });

  it("merges the metrics as the Python SDK does: the user's win, the loss is the custom one", async () => {
    const { metrics } = await training.forwardBackwardCustom([datum(1)], sumOfExp);
    expect(metrics["loss:sum"]).toBeCloseTo(Math.exp(-1) + Math.exp(-1.1) + Math.exp(-1.2), 6);
    expect(metrics["mine:mean"]).toBeCloseTo(-1.1, 6);
    expect(metrics).toMatchObject({ "surrogate_loss:sum": 5, "clock:max": 2, other: 4 });
  });

  it("keeps other inputs with the user, and sends weights that are there with the forward pass", async () => {
    let seen: readonly Datum[] = [];
    await training.forwardBackwardCustom(
      [datum(1, 3, { refLogprobs: new Float32Array([1, 2, 3]), weights: [0, 1, 1] })],
      (data, logprobs) => {
        seen = data;
        return { loss: sum(mul(logprobs[0]!, data[0]!.lossFnInputs["refLogprobs"]!)) };
      },
    );
    expect(seen[0]!.lossFnInputs["refLogprobs"]!.toArray()).toEqual([1, 2, 3]);
    const [forward, backward] = passes();
    for (const pass of [forward, backward]) {
      expect(Object.keys(pass!.data[0]!.lossFnInputs).sort()).toEqual(["targetTokens", "weights"]);
    }
    expect(weightsOf(forward!.data[0])).toEqual([0, 1, 1]);
    expect(weightsOf(backward!.data[0])).toEqual([-1, -2, -3]);
  });

  it("gives logprobs the shape of the targets, and the weights too", async () => {
    const targetTokens = { data: new Int32Array([1, 2, 3, 4, 5, 6]), shape: [2, 3] };
    let shape: readonly number[] = [];
    await training.forwardBackwardCustom(
      [{ modelInput: [1, 2], lossFnInputs: { targetTokens } }],
      (_, logprobs) => {
        shape = logprobs[0]!.shape;
        return {
          loss: sum(
            mul(logprobs[0]!, [
              [1, 2, 3],
              [4, 5, 6],
            ]),
          ),
        };
      },
    );
    expect(shape).toEqual([2, 3]);
    const weights = passes()[1]!.data[0]!.lossFnInputs["weights"]!;
    expect([weights.shape, weights.toArray()]).toEqual([
      [2, 3],
      [-1, -2, -3, -4, -5, -6],
    ]);
  });

  it("keeps its place: what was called behind it is sent behind its backward pass", async () => {
    let finishLoss: () => void = () => {};
    const waiting = new Promise<void>((resolve) => {
      finishLoss = resolve;
    });
    let reached: () => void = () => {};
    const inLoss = new Promise<void>((resolve) => {
      reached = resolve;
    });
    const first = training.forwardBackward(
      [{ modelInput: [1], lossFnInputs: { targetTokens: [1], weights: [1] } }],
      "cross_entropy",
    );
    const custom = training.forwardBackwardCustom([datum(1)], async (data, logprobs) => {
      reached();
      await waiting;
      return sumOfExp(data, logprobs);
    });
    const step = training.optimStep();
    const second = training.forwardBackwardCustom([datum(2)], sumOfExp);
    const secondStep = training.optimStep();
    await inLoss;
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(sent()).toEqual(["backward 1", "forward 2"]);
    finishLoss();
    await Promise.all([first, custom, step, second, secondStep]);
    expect(sent()).toEqual([
      "backward 1",
      "forward 2",
      "backward 3",
      "optim 4",
      "forward 5",
      "backward 6",
      "optim 7",
    ]);
    expect(custom.requestId).toMatch(/^future/);
  });

  it("does not wait for the backward pass's result before the next call is sent", async () => {
    let stepSent = false;
    server.on(OPTIM, () => {
      stepSent = true;
      return { json: { request_id: "step" } };
    });
    server.future("step", { json: {} });
    server.accept(FORWARD_BACKWARD, (request) => {
      if (decodeForwardBackwardRequest(request.body).forwardOnly || stepSent) return answer(request);
      return { json: { type: "try_again", queue_state: "active" } };
    });
    const custom = training.forwardBackwardCustom([datum(1)], sumOfExp);
    const step = training.optimStep();
    await custom.submitted;
    await Promise.all([custom, step]);
    expect(stepSent).toBe(true);
  });

  it("is released when the user's function throws, with no hole in the numbers", async () => {
    const trouble = new RangeError("my own trouble");
    const sync = training.forwardBackwardCustom([datum(1)], () => {
      throw trouble;
    });
    const step = training.optimStep();
    const later = training.forwardBackwardCustom([datum(1)], () => Promise.reject(trouble));
    const laterStep = training.optimStep();
    await expect(sync).rejects.toBe(trouble);
    await expect(later).rejects.toBe(trouble);
    await expect(sync.submitted).rejects.toBe(trouble);
    await expect(step).rejects.toMatchObject({ cause: trouble });
    await expect(laterStep).rejects.toMatchObject({ cause: trouble });
    expect(sent()).toEqual(["forward 1", "optim 2", "forward 3", "optim 4"]);
  });

  it("is released when a pass fails", async () => {
    server.accept(FORWARD_BACKWARD, { json: { error: "no memory", category: "server" } });
    const custom = training.forwardBackwardCustom([datum(1)], sumOfExp);
    const step = training.optimStep();
    await expect(custom).rejects.toThrow("no memory");
    await expect(step).rejects.toThrow(/gradients of a forwardBackwardCustom.*no memory/);
    expect(sent()).toEqual(["forward 1", "optim 2"]);
  });

  it("is released when the caller gives up during a loss that never ends", async () => {
    const giveUp = new AbortController();
    const custom = training.forwardBackwardCustom(
      [datum(1)],
      () => {
        giveUp.abort();
        return new Promise(() => {});
      },
      { signal: giveUp.signal },
    );
    const step = training.optimStep();
    await expect(custom).rejects.toThrow("aborted");
    await expect(step).rejects.toThrow("aborted");
    expect(sent()).toEqual(["forward 1", "optim 2"]);
  });

  it("ends with the client, in words", async () => {
    const custom = training.forwardBackwardCustom([datum(1)], () => {
      void client.service.close();
      return new Promise(() => {});
    });
    await expect(custom).rejects.toThrow("The client was closed before the request was finished.");
  });

  it("sees batches whole, though they are sent in parts", async () => {
    await client.service.close();
    await start({ fwdbwd_max_chunk_len: 2 });
    let datums = 0;
    const custom = training.forwardBackwardCustom(
      Array.from({ length: 5 }, (_, index) => datum(index + 1)),
      (data, logprobs) => {
        datums = data.length;
        return { loss: mul(sum(logprobs[4]!), logprobs.length) };
      },
    );
    const step = training.optimStep();
    await Promise.all([custom, step]);
    expect(datums).toBe(5);
    const backward = passes()
      .filter(({ forwardOnly }) => !forwardOnly)
      .sort((a, b) => a.seqId - b.seqId);
    expect(backward.flatMap(({ data }) => data.map(weightsOf))).toEqual([
      ...Array.from({ length: 4 }, () => [0, 0, 0]),
      [-5, -5, -5],
    ]);
    expect(sent().at(-1)).toBe("optim 7");
  });

  it("takes gradients made by anything", async () => {
    const lossFn = withGradients((data, logprobs) => ({
      loss: 12,
      gradients: logprobs.map((each) => each.map((value) => value * data.length)),
      metrics: { count: data.length },
    }));
    const { metrics } = await training.forwardBackwardCustom([datum(1), datum(2, 1)], lossFn);
    expect(metrics).toMatchObject({ "loss:sum": 12, count: 2 });
    expect(weightsOf(passes()[1]!.data[1])).toEqual([4]);
  });

  it("reports regularizers", async () => {
    const lossFn = withRegularizers(sumOfExp, [{ weight: 0.5, term: l2() }]);
    const { metrics, regularizers } = await training.forwardBackwardCustom([datum(1)], lossFn);
    expect(regularizers!.terms[0]).toMatchObject({ name: "l2", weight: 0.5 });
    expect(metrics["loss:sum"]).toBe(regularizers!.total);
    expect(metrics["regularizer/l2/contribution:sum"]).toBe(regularizers!.terms[0]!.contribution);
    expect(metrics["mine:mean"]).toBeCloseTo(-1.1, 6);
  });

  describe("refuses, naming the datum and the operation,", () => {
    const batch = [datum(1), datum(2, 2)];
    const failures: [string, CustomLossFn][] = [
      [
        "The loss is NaN: the result of log is NaN at position 0 of shape [2] (from data[1].logprobs).",
        (_, logprobs) => ({ loss: sum(stack(logprobs.map((each, i) => sum(i === 1 ? log(each) : each)))) }),
      ],
      [
        "mul: the shapes [2] (from data[1].logprobs) and [3] cannot be broadcast together",
        (_, logprobs) => ({ loss: sum(mul(logprobs[1]!, [1, 2, 3])) }),
      ],
      [
        "the loss must have one element, got shape [3] (from data[0].logprobs)",
        (_, [first]) => ({ loss: first! }),
      ],
      [
        "The loss does not depend on the logprobs of any datum",
        (_, [first]) => ({ loss: sum(stopGradient(first!)) }),
      ],
      ["The loss does not depend on the logprobs of any datum", () => ({ loss: tensor(3) })],
      ["The loss function must return { loss, metrics? }", () => undefined as never],
      ["The loss function must return { loss, metrics? }", () => ({ loss: 3 }) as never],
      [
        "The metric wrong must be a number, got string",
        (_, [first]) => ({ loss: sum(first!), metrics: { wrong: "3" as never } }),
      ],
      [
        "custom loss: expected 2 gradients, one per input, got 1",
        () => ({ loss: 1, gradients: [new Float32Array(3)] }),
      ],
      [
        "custom loss: the gradient of data[1].logprobs must have the shape [2], got [3]",
        () => ({ loss: 1, gradients: [new Float32Array(3), new Float32Array(3)] }),
      ],
      [
        "custom loss: the gradient of data[1].logprobs is NaN at position 1",
        () => ({ loss: 1, gradients: [new Float32Array(3), new Float32Array([0, Number.NaN])] }),
      ],
      [
        "The gradient with respect to data[0].logprobs is 1e+40 at position 2, which is too large for a 32-bit float.",
        () => ({ loss: 1, gradients: [new Float64Array([0, 0, 1e40]), new Float64Array(2)] }),
      ],
    ];
    it.each(failures)("%s", async (message, lossFn) => {
      const custom = training.forwardBackwardCustom(batch, lossFn);
      const step = training.optimStep();
      await expect(custom).rejects.toThrow(message);
      await expect(step).rejects.toThrow(message);
      expect(sent()).toEqual(["forward 1", "optim 2"]);
    });

    it("arguments before anything is sent", () => {
      expect(() => training.forwardBackwardCustom([], sumOfExp)).toThrow("at least one datum");
      expect(() => training.forwardBackwardCustom([{ modelInput: [1] }], sumOfExp)).toThrow(
        "data[0].lossFnInputs.targetTokens is missing",
      );
      expect(() => training.forwardBackwardCustom(batch, "dpo" as never)).toThrow(
        "lossFn must be a function or a loss of createCustomLoss, got string",
      );
      expect(sent()).toEqual([]);
    });

    it("answers that do not fit the data", async () => {
      server.accept(FORWARD_BACKWARD, () => ({
        bytes: encodeForwardBackwardOutput({
          lossFnOutputType: "ArrayRecord",
          lossFnOutputs: batch.map(() => ({ logprobs: TensorData.from(new Float32Array(3)) })),
          metrics: {},
        }),
      }));
      await expect(training.forwardBackwardCustom(batch, sumOfExp)).rejects.toThrow(
        "The forward pass answered logprobs of shape [3] for data[1], whose targetTokens have the shape [2].",
      );
    });
  });
});
