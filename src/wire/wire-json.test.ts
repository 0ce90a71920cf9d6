import { describe, expect, it } from "vitest";
import { passFromJson, passToJson } from "../../test/support/pass-json.js";
import { TinkerError, ValidationError } from "../errors.js";
import { encodeRequest } from "./endpoints/endpoint.js";
import { endpoints } from "./endpoints/index.js";
import { ModelInput } from "./sampling/model-input.js";
import type { SampleResponse } from "./sampling/sampling-types.js";
import { TensorData } from "./tensors/tensor-data.js";
import { Datum } from "./training/datum.js";
import type { ForwardBackwardRequest } from "./training/training-types.js";

const { sample, forwardBackward } = endpoints;
const throughText = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe("forward and backward requests in JSON", () => {
  const request: ForwardBackwardRequest = {
    modelId: "m",
    seqId: 4,
    lossFn: "ppo",
    lossFnConfig: { clipLowThreshold: 0.5, mode: "x" },
    forwardOnly: false,
    data: [
      new Datum({ modelInput: [1, 2], lossFnInputs: { targetTokens: [2, 3], advantages: [0.5, 1] } }),
      new Datum({
        modelInput: [{ type: "dmel", dmel: Uint8Array.of(0, 1, 2) }],
        lossFnInputs: { logprobs: [1, 2] },
      }),
    ],
  };

  it("have the names older servers know", () => {
    expect(throughText(passToJson(request))).toEqual({
      forward_backward_input: {
        data: [
          {
            model_input: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
            loss_fn_inputs: {
              target_tokens: { data: [2, 3], dtype: "int64", shape: [2] },
              advantages: { data: [0.5, 1], dtype: "float32", shape: [2] },
            },
          },
          {
            model_input: { chunks: [{ type: "dmel", dmel: "AAEC" }] },
            loss_fn_inputs: { logprobs: { data: [1, 2], dtype: "float32", shape: [2] } },
          },
        ],
        loss_fn: "ppo",
        loss_fn_config: { clip_low_threshold: 0.5, mode: "x" },
      },
      model_id: "m",
      seq_id: 4,
    });
  });

  it("come back as they were, both passes", () => {
    for (const forwardOnly of [false, true]) {
      const json = passToJson({ ...request, forwardOnly });
      expect(Object.keys(json)).toContain(forwardOnly ? "forward_input" : "forward_backward_input");
      expect(passFromJson(throughText(json))).toEqual({ ...request, forwardOnly });
    }
  });

  it("carry sparse tensors dense, because older servers may not know sparse ones", () => {
    const targets = [
      [0, 0, 0, 5],
      [0, 0, 0, 0],
    ];
    const datum = new Datum({ modelInput: [1, 2], lossFnInputs: { targetTokens: targets } });
    expect(datum.lossFnInputs["targetTokens"]!.isSparse).toBe(true);
    const json = passToJson({ ...request, data: [datum] });
    expect(json).toMatchObject({
      forward_backward_input: {
        data: [{ loss_fn_inputs: { target_tokens: { data: targets.flat(), shape: [2, 4] } } }],
      },
    });
  });

  it("refuse what JSON cannot carry", () => {
    const infinite = new Datum({ modelInput: [1], lossFnInputs: { logprobs: [Number.NEGATIVE_INFINITY] } });
    expect(() => passToJson({ ...request, data: [infinite] })).toThrow(
      "data[0].lossFnInputs.logprobs[0] is -Infinity",
    );
    const span = { type: "prompt" as const, sequenceId: "s", length: 2 };
    const marked = request.data[0]!.withProvenance({ modelInput: [span], lossFnInputs: [span] });
    expect(() => passToJson({ ...request, data: [marked] })).toThrow("data[0] has provenance");
  });

  it.each<[string, unknown, string]>([
    ["no object", [], "body must be an object"],
    ["no input", { model_id: "m" }, "forwardBackwardInput is missing"],
    ["no model", { forward_input: { data: [], loss_fn: "x" } }, "modelId is missing"],
    ["no data", { forward_input: { loss_fn: "x" }, model_id: "m" }, "data is missing"],
    [
      "a datum without input",
      { forward_input: { loss_fn: "x", data: [{}] }, model_id: "m" },
      "data[0].modelInput must be an object, got undefined",
    ],
    [
      "a bad token",
      {
        forward_input: { loss_fn: "x", data: [{ model_input: { chunks: [{ tokens: [-1] }] } }] },
        model_id: "m",
      },
      "data[0].modelInput.chunks[0].tokens[0] must be a token id",
    ],
    [
      "a bad tensor",
      {
        forward_input: {
          loss_fn: "x",
          data: [
            { model_input: { chunks: [] }, loss_fn_inputs: { weights: { data: ["1"], dtype: "float32" } } },
          ],
        },
        model_id: "m",
      },
      "data[0].lossFnInputs.weights.data[0] must be a number",
    ],
    [
      "an unknown dtype",
      {
        forward_input: {
          loss_fn: "x",
          data: [
            { model_input: { chunks: [] }, loss_fn_inputs: { weights: { data: [1], dtype: "complex" } } },
          ],
        },
        model_id: "m",
      },
      'weights.dtype must be "float32" or "int64", got "complex"',
    ],
  ])("that have %s are refused by a server", (_, json, message) => {
    expect(() => passFromJson(json)).toThrow(message);
    expect(() => passFromJson(json)).toThrow(ValidationError);
  });
});

describe("forward and backward outputs in JSON", () => {
  it("come back as they were, with null for what JSON cannot carry", () => {
    const output = {
      lossFnOutputType: "ArrayRecord",
      lossFnOutputs: [
        { logprobs: TensorData.from([-1, Number.NaN]), elementwiseLoss: TensorData.from([[1, 2]]) },
      ],
      metrics: { "loss:sum": 2, "odd_name:mean": Number.NaN },
    };
    const json = throughText(forwardBackward.future.toJson(output));
    expect(json).toMatchObject({
      loss_fn_outputs: [
        { logprobs: { data: [-1, null], dtype: "float32", shape: [2] }, elementwise_loss: { shape: [1, 2] } },
      ],
    });
    expect(forwardBackward.future.fromJson(json)).toEqual(output);
  });

  it("are read from servers that say less", () => {
    const read = forwardBackward.future.fromJson({
      loss_fn_output_type: "x:TorchLossReturn",
      loss_fn_outputs: [
        {
          logprobs: [-1, null],
          loss: { data: [1, 2], dtype: "bfloat16" },
          count: { data: [3], dtype: "int32" },
          none: null,
        },
      ],
      new_field: 1,
    });
    expect(read.lossFnOutputType).toBe("TorchLossReturn");
    expect(read.metrics).toEqual({});
    const [record] = read.lossFnOutputs;
    expect(Object.keys(record!)).toEqual(["logprobs", "loss", "count"]);
    expect([record!["logprobs"]!.toArray(), record!["loss"]!.dtype, record!["count"]!.dtype]).toEqual([
      [-1, Number.NaN],
      "float32",
      "int64",
    ]);
    expect(forwardBackward.future.fromJson({})).toEqual({
      lossFnOutputType: "ArrayRecord",
      lossFnOutputs: [],
      metrics: {},
    });
  });

  it("that cannot be read are the server's fault", () => {
    const read = () =>
      forwardBackward.future.fromJson({ loss_fn_outputs: [{ logprobs: { data: [1], shape: [2] } }] });
    expect(read).toThrow(
      "The server's ForwardBackwardOutput cannot be read: lossFnOutputs[0].logprobs has 1 values",
    );
    expect(read).not.toThrow(ValidationError);
    expect(() => forwardBackward.future.fromJson("oops")).toThrow(TinkerError);
  });
});

const written = (given: unknown) =>
  encodeRequest(endpoints.sample, endpoints.sample.request.check(given, "")).json;
const read = (json: unknown) => endpoints.sample.request.read(json, "");

describe("sample requests in JSON", () => {
  it("carry the older fields always and the newer ones when they ask for something", () => {
    const prompt = ModelInput.fromInts([1, 2]);
    expect(
      written({
        prompt,
        samplingSessionId: "s",
        seqId: 0,
        topkSampleLogprobs: 0,
        samplingParams: { stop: [], maxTokens: undefined },
      }),
    ).toEqual({
      num_samples: 1,
      prompt: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
      sampling_params: { stop: [], temperature: 1, top_k: -1, top_p: 1 },
      sampling_session_id: "s",
      seq_id: 0,
      topk_prompt_logprobs: 0,
      type: "sample",
    });
    const targets = TensorData.sparse([[0, 0, 0, 0, 5]], { dtype: "int64" });
    expect(written({ prompt, targetPromptLogprobs: targets })).toMatchObject({
      target_prompt_logprobs: {
        data: [5],
        shape: [1, 5],
        sparse_crow_indices: [0, 1],
        sparse_col_indices: [4],
      },
    });
  });

  it("are read by a server, null for absent", () => {
    const request = read({
      prompt: { chunks: [{ type: "image", data: "AQI=", format: "png", expected_tokens: null }] },
      num_samples: 2,
      sampling_params: { max_tokens: 3, top_k: 5 },
      seq_id: null,
      target_prompt_logprobs: { data: [1], dtype: "int64", shape: [1, 1] },
      type: "sample",
    });
    expect(request.prompt.chunks).toEqual([{ type: "image", data: Uint8Array.of(1, 2), format: "png" }]);
    expect({
      ...request,
      prompt: undefined,
      targetPromptLogprobs: request.targetPromptLogprobs?.toNested(),
    }).toEqual({
      numSamples: 2,
      samplingParams: { maxTokens: 3, temperature: 1, topK: 5, topP: 1 },
      targetPromptLogprobs: [[1]],
      topkPromptLogprobs: 0,
    });
    expect(() => read({})).toThrow("prompt is missing");
    expect(() => read(null)).toThrow("body must be an object, got null");
  });
});

describe("sample responses in JSON", () => {
  it("come back as they were", () => {
    const response: SampleResponse = {
      sequences: [
        {
          stopReason: "length",
          sequenceId: "q",
          tokens: Int32Array.of(1),
          logprobs: Float32Array.of(-0.5),
          topkLogprobs: [[[1, -0.5]]],
        },
      ],
      promptLogprobs: [null, -1],
      topkPromptLogprobs: [
        null,
        [
          [1, -1],
          [2, -3],
        ],
      ],
      targetPromptLogprobs: TensorData.from([[-1.5]]),
      promptCacheHitTokens: 3,
      promptAltTokens: { tokens: TensorData.from([[1]]), logprobs: TensorData.from([[-0.5]]) },
    };
    expect(sample.future.fromJson(throughText(sample.future.toJson(response)))).toEqual(response);
  });

  it("are read from servers that say less or more", () => {
    expect(
      sample.future.fromJson({
        sequences: [{ stop_reason: "eos", tokens: [5], logprobs: [null] }, { tokens: [] }],
        prompt_logprobs: [null, -2],
        topk_prompt_logprobs: [null, [[3, -1], "odd"]],
        brand_new: {},
      }),
    ).toEqual({
      sequences: [
        {
          stopReason: "eos",
          sequenceId: null,
          tokens: Int32Array.of(5),
          logprobs: Float32Array.of(Number.NaN),
          topkLogprobs: null,
        },
        { stopReason: "stop", sequenceId: null, tokens: Int32Array.of(), logprobs: null, topkLogprobs: null },
      ],
      promptLogprobs: [null, -2],
      topkPromptLogprobs: [null, [[3, -1]]],
      targetPromptLogprobs: null,
      promptCacheHitTokens: 0,
      promptAltTokens: null,
    });
  });

  it.each<[unknown, string]>([
    [{}, "sequences must be a list, got undefined"],
    [null, "sequences must be a list"],
    [{ sequences: [{}] }, "sequences[0].tokens must be a list of token ids, got undefined"],
    [{ sequences: [{ tokens: [1.5] }] }, "sequences[0].tokens[0] must be a token id"],
  ])("that are %j are the server's fault", (json, message) => {
    expect(() => sample.future.fromJson(json)).toThrow(
      `The server's SampleResponse cannot be read: ${message}`,
    );
  });
});
