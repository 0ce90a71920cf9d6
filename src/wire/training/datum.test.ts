import { describe, expect, it } from "vitest";
import { ValidationError } from "../../errors.js";
import { ModelInput } from "../sampling/model-input.js";
import { TensorData } from "../tensors/tensor-data.js";
import { checkDatum, Datum, type DatumLike, type ProvenanceSpan } from "./datum.js";

const tokens = [1, 2, 3];

describe("Datum", () => {
  it("converts plain lists by their key", () => {
    const datum = new Datum({
      modelInput: tokens,
      lossFnInputs: {
        targetTokens: [2, 3, 4],
        weights: [0, 1, 1],
        logprobs: [-1, -2, -3],
        advantages: [1, 1, 1],
        clipLowThreshold: [1, 1, 1],
        clipHighThreshold: [1, 1, 1],
        sequenceRatioMask: [1, 1, 1],
      },
    });
    expect(datum.modelInput.toInts()).toEqual(tokens);
    const dtypes = Object.fromEntries(
      Object.entries(datum.lossFnInputs).map(([key, tensor]) => [key, tensor.dtype]),
    );
    expect(dtypes).toEqual({
      targetTokens: "int64",
      weights: "float32",
      logprobs: "float32",
      advantages: "float32",
      clipLowThreshold: "float32",
      clipHighThreshold: "float32",
      sequenceRatioMask: "float32",
    });
  });

  it("brings typed arrays to the dtype of their key", () => {
    const datum = new Datum({
      modelInput: Int32Array.from(tokens),
      lossFnInputs: { targetTokens: Float64Array.from(tokens), weights: Uint8Array.of(0, 1, 1) },
    });
    expect(datum.lossFnInputs["targetTokens"]!.data).toEqual(Int32Array.from(tokens));
    expect(datum.lossFnInputs["weights"]!.data).toEqual(Float32Array.of(0, 1, 1));
  });

  it("stores mostly empty 2-D targets and weights sparse, and leaves a TensorData as it is", () => {
    const row = [0, 0, 0, 0, 0, 0, 0, 9];
    const soft = [row, row, row];
    const datum = new Datum({ modelInput: tokens, lossFnInputs: { targetTokens: soft, weights: soft } });
    expect(datum.lossFnInputs["targetTokens"]!.isSparse).toBe(true);
    expect(datum.lossFnInputs["weights"]!.isSparse).toBe(true);
    expect(datum.lossFnInputs["weights"]!.toNested()).toEqual(soft);
    const explicit = TensorData.from(soft, { dtype: "int64" });
    const kept = new Datum({ modelInput: tokens, lossFnInputs: { targetTokens: explicit } });
    expect(kept.lossFnInputs["targetTokens"]).toBe(explicit);
    const advantages = new Datum({ modelInput: tokens, lossFnInputs: { advantages: soft } });
    expect(advantages.lossFnInputs["advantages"]!.isSparse).toBe(false);
  });

  it("takes new inputs of custom losses when their dtype is plain", () => {
    const datum = new Datum({
      modelInput: tokens,
      lossFnInputs: {
        refLogprobs: Float32Array.of(1, 2, 3),
        qLogprobs: Float32Array.of(1),
        margin: TensorData.from(2),
      },
    });
    expect(datum.lossFnInputs["refLogprobs"]!.dtype).toBe("float32");
    expect(datum.lossFnInputs["margin"]!.shape).toEqual([]);
  });

  it.each<[string, unknown, string, string]>([
    [
      "a short weight vector",
      { modelInput: tokens, lossFnInputs: { weights: [1, 1] } },
      "data[3].lossFnInputs.weights",
      "data[3].lossFnInputs.weights must have 3 rows, as the model input has, got 2",
    ],
    [
      "long soft targets",
      {
        modelInput: [1],
        lossFnInputs: {
          targetTokens: [
            [1, 2],
            [3, 4],
          ],
        },
      },
      "data[3].lossFnInputs.targetTokens",
      "must have 1 rows",
    ],
    [
      "a NaN token",
      { modelInput: [1, Number.NaN] },
      "data[3].modelInput[1]",
      "data[3].modelInput[1] must be a token id",
    ],
    [
      "a NaN target",
      { modelInput: [1], lossFnInputs: { targetTokens: [Number.NaN] } },
      "data[3].lossFnInputs.targetTokens[0]",
      "must be an integer",
    ],
    [
      "a negative target",
      { modelInput: [1], lossFnInputs: { targetTokens: [-100] } },
      "data[3].lossFnInputs.targetTokens[0]",
      "must be a token id (a non-negative integer), got -100",
    ],
    [
      "a NaN weight",
      { modelInput: [1], lossFnInputs: { weights: [Number.NaN] } },
      "data[3].lossFnInputs.weights[0]",
      "data[3].lossFnInputs.weights[0] is NaN",
    ],
    [
      "a ragged list",
      { modelInput: [1, 2], lossFnInputs: { targetTokens: [[1, 2], [3]] } },
      "data[3].lossFnInputs.targetTokens[1]",
      "must be rectangular",
    ],
    [
      "a snake_case input",
      { modelInput: [1], lossFnInputs: { target_tokens: [1] } },
      "data[3].lossFnInputs.target_tokens",
      "unknown field data[3].lossFnInputs.target_tokens; did you mean targetTokens?",
    ],
    [
      "a misspelt input",
      { modelInput: [1], lossFnInputs: { wieghts: Float32Array.of(1) } },
      "data[3].lossFnInputs.wieghts",
      "did you mean weights?",
    ],
    [
      "an unknown snake_case input",
      { modelInput: [1], lossFnInputs: { my_mask: Float32Array.of(1) } },
      "data[3].lossFnInputs.my_mask",
      "did you mean myMask?",
    ],
    [
      "a list of unknown dtype",
      { modelInput: [1], lossFnInputs: { mask: [1] } },
      "data[3].lossFnInputs.mask",
      "give a typed array or a TensorData",
    ],
    ["a misspelt field", { modelInputs: [1] }, "data[3].modelInputs", "did you mean modelInput?"],
    ["a snake_case field", { model_input: [1] }, "data[3].model_input", "did you mean modelInput?"],
    ["no input", { lossFnInputs: {} }, "data[3].modelInput", "data[3].modelInput must be"],
    [
      "float targets",
      { modelInput: [1], lossFnInputs: { targetTokens: TensorData.from([0.5]) } },
      "data[3].lossFnInputs.targetTokens",
      "must be int64, got a float32 tensor",
    ],
    [
      "inputs that are no object",
      { modelInput: [1], lossFnInputs: [1] },
      "data[3].lossFnInputs",
      "must be an object",
    ],
    ["nothing", null, "data[3]", "data[3] must be an object, got null"],
  ])("refuses %s and names it", (_, value, field, message) => {
    let caught: unknown;
    try {
      Datum.from(value as DatumLike, 3);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(ValidationError);
    expect((caught as ValidationError).field).toBe(field);
    expect((caught as ValidationError).message).toContain(message);
  });

  it("compares the loss inputs with each other where the input's length is unknown", () => {
    const modelInput = ModelInput.from([{ type: "image", data: Uint8Array.of(1), format: "png" }]);
    const make = (weights: number[]) =>
      new Datum({ modelInput, lossFnInputs: { targetTokens: [1, 2], weights } });
    expect(make([1, 1]).lossFnInputs["weights"]!.shape).toEqual([2]);
    expect(() => make([1])).toThrow("lossFnInputs.weights must have 2 rows, as targetTokens has, got 1");
  });

  it("is not checked when it came over the wire, until asked", () => {
    const received = Datum.received({
      modelInput: ModelInput.fromInts([1, 2]),
      lossFnInputs: { weights: TensorData.from([1], { dtype: "float32" }) },
    });
    expect(() => checkDatum(received, "data[0]")).toThrow("data[0].lossFnInputs.weights must have 2 rows");
  });
});

describe("provenance", () => {
  const datum = new Datum({ modelInput: tokens, lossFnInputs: { targetTokens: tokens } });
  const span = (length: number, more: Partial<ProvenanceSpan> = {}): ProvenanceSpan => {
    return { type: "sampled", sequenceId: "s", length, ...more };
  };

  it("is kept by a copy", () => {
    const marked = datum.withProvenance({
      modelInput: [span(1), span(2, { type: "prompt", offset: 4 })],
      lossFnInputs: [span(3)],
    });
    expect(marked.modelInputSpans).toHaveLength(2);
    expect(marked.lossFnInputs["targetTokens"]).toBe(datum.lossFnInputs["targetTokens"]);
    expect(datum.modelInputSpans).toBeUndefined();
  });

  it.each<[string, readonly ProvenanceSpan[], readonly ProvenanceSpan[], string]>([
    ["gaps in the input", [span(2)], [span(3)], "modelInputSpans must cover 3 positions, got 2"],
    ["too much of the targets", [span(3)], [span(4)], "lossFnInputSpans must cover 3 positions, got 4"],
    [
      "no sequence",
      [span(3, { sequenceId: "" })],
      [span(3)],
      "modelInputSpans[0].sequenceId must be a non-empty string",
    ],
    [
      "a negative offset",
      [span(3, { offset: -1 })],
      [span(3)],
      "modelInputSpans[0].offset must be a non-negative integer, got -1",
    ],
    [
      "a broken length",
      [span(1.5)],
      [span(3)],
      "modelInputSpans[0].length must be a non-negative integer, got 1.5",
    ],
    [
      "an unknown type",
      [span(3, { type: "other" as "prompt" })],
      [span(3)],
      'modelInputSpans[0].type must be "prompt" or "sampled"',
    ],
  ])("with %s is refused", (_, modelInput, lossFnInputs, message) => {
    expect(() => datum.withProvenance({ modelInput, lossFnInputs })).toThrow(message);
  });

  it("comes as a pair", () => {
    expect(() => new Datum({ modelInput: tokens, modelInputSpans: [span(3)] })).toThrow(
      "must be given together",
    );
  });
});
