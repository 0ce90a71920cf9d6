import { describe, expect, expectTypeOf, it } from "vitest";
import { ValidationError } from "../../errors.js";
import type { TensorData } from "../tensors/tensor-data.js";
import type { DatumLike } from "./datum.js";
import {
  checkLossFnConfig,
  checkLossFnName,
  type LossFnConfig,
  type LossFnInputsLike,
  type LossFnName,
  type LossFnOutput,
} from "./losses.js";
import type { ForwardBackwardOutput } from "./training-types.js";

describe("loss types", () => {
  it("know the config and the inputs of each loss", () => {
    const send = <L extends string>(
      _data: readonly DatumLike<L>[],
      _lossFn: L | LossFnName,
      _config?: LossFnConfig<L>,
    ) => {};
    const text = { modelInput: [1], lossFnInputs: { targetTokens: [1], weights: [1] } };
    const policy = { modelInput: [1], lossFnInputs: { targetTokens: [1], logprobs: [1], advantages: [1] } };

    send([text], "cross_entropy");
    send([policy], "ppo", { clipLowThreshold: 0.8 });
    send([policy], "dro", { beta: 0.1 });
    send([policy], "stable_reinforce", { klCoeff: 0.1, mode: "x" });
    send([text], "a_loss_of_tomorrow", { anything: 1, mode: "x" });
    // @ts-expect-error a misspelt config key
    send([policy], "ppo", { clipLowTreshold: 0.8 });
    // @ts-expect-error a config for a loss without one
    send([text], "cross_entropy", { beta: 1 });
    // @ts-expect-error ppo's keys are not dro's
    send([policy], "dro", { clipLowThreshold: 1 });
    // @ts-expect-error a config value of the wrong kind
    send([policy], "ppo", { clipLowThreshold: "0.8" });
    // @ts-expect-error a misspelt input key
    send([{ modelInput: [1], lossFnInputs: { targetTokens: [1], wieghts: [1] } }], "cross_entropy");
    // @ts-expect-error a missing input
    send([text], "ppo");

    expectTypeOf<
      ForwardBackwardOutput<"ppo">["lossFnOutputs"][number]["logprobs"]
    >().toEqualTypeOf<TensorData>();
    const known = {} as LossFnOutput<"cross_entropy">;
    const unknown = {} as LossFnOutput<"new_loss">;
    expectTypeOf(known.logprobs).toEqualTypeOf<TensorData>();
    expectTypeOf(known["more"]).toEqualTypeOf<TensorData | undefined>();
    expectTypeOf(unknown["logprobs"]).toEqualTypeOf<TensorData | undefined>();
    expectTypeOf(known).toExtend<LossFnOutput>();

    expectTypeOf<LossFnConfig<"dro">>().toEqualTypeOf<{ readonly beta?: number | undefined }>();
    expectTypeOf<LossFnConfig<"new_loss">>().toEqualTypeOf<Readonly<Record<string, number | string>>>();
    expectTypeOf<LossFnInputsLike<"cross_entropy">>().toHaveProperty("targetTokens");
  });
});

describe("checkLossFnConfig", () => {
  it("passes what a loss knows, and anything a loss of tomorrow may want", () => {
    expect(checkLossFnConfig("ppo", { clipLowThreshold: 0.8, clipHighThreshold: undefined })).toEqual({
      clipLowThreshold: 0.8,
    });
    expect(checkLossFnConfig("a_loss_of_tomorrow", { whatever: 1, mode: "x" })).toEqual({
      whatever: 1,
      mode: "x",
    });
    expect(checkLossFnConfig("custom", { lossId: "abc" })).toEqual({ lossId: "abc" });
    expect(checkLossFnConfig("gspo", { clipLowThreshold: 1, newKey: 2 })).toEqual({
      clipLowThreshold: 1,
      newKey: 2,
    });
    expect(checkLossFnConfig("cross_entropy", undefined)).toBeUndefined();
    expect(checkLossFnConfig("toString", { beta: 1 })).toEqual({ beta: 1 });
  });

  it.each<[string, unknown, string]>([
    ["ppo", { clipLowTreshold: 0.8 }, "unknown field config.clipLowTreshold; did you mean clipLowThreshold?"],
    [
      "ppo",
      { clip_low_threshold: 0.8 },
      "unknown field config.clip_low_threshold; did you mean clipLowThreshold?",
    ],
    ["dro", { gamma: 1 }, "unknown field config.gamma; known fields are beta"],
    ["cross_entropy", { beta: 1 }, "unknown field config.beta; known fields are none"],
    ["stable_reinforce", { klCoef: 1 }, "did you mean klCoeff?"],
    ["a_loss_of_tomorrow", { some_key: 1 }, "did you mean someKey?"],
    ["dro", { beta: Number.NaN }, "config.beta must be a finite number or a text, got NaN"],
    ["dro", { beta: null }, "config.beta must be a finite number or a text, got null"],
    ["dro", [1], "config must be an object, got a list of 1"],
  ])("refuses %s with %j", (lossFn, config, message) => {
    expect(() => checkLossFnConfig(lossFn, config)).toThrow(message);
    expect(() => checkLossFnConfig(lossFn, config)).toThrow(ValidationError);
  });
});

describe("checkLossFnName", () => {
  it("lets known losses and ones of tomorrow pass", () => {
    for (const name of ["cross_entropy", "gspo", "a_loss_of_tomorrow", "toString"])
      expect(() => checkLossFnName(name)).not.toThrow();
  });

  it.each([
    ["cross_entrpy", 'unknown lossFn "cross_entrpy"; did you mean cross_entropy?'],
    ["crossEntropy", "did you mean cross_entropy?"],
    ["", 'lossFn must be the name of a loss, got ""'],
    [undefined, "lossFn must be the name of a loss, got undefined"],
  ])("refuses %j", (name, message) => {
    expect(() => checkLossFnName(name)).toThrow(message);
  });
});
