import { describe, expect, it } from "vitest";
import { fieldNames, inUsersWords, inWireWords } from "./field-names.js";

describe("names of fields", () => {
  it("come from the table of endpoints, nested ones too", () => {
    const names = fieldNames();
    expect(names.get("model_id")).toBe("modelId");
    expect(names.get("top_k")).toBe("topK");
    expect(names.get("train_unembed")).toBe("trainUnembed");
    expect(names.get("cloned_sampler_id")).toBe("clonedSamplerId");
    expect(names.get("kl_coeff")).toBe("klCoeff");
    expect(names.has("optimizer")).toBe(false);
  });

  it.each([
    ["loss_fn must be one of cross_entropy, ppo", "lossFn must be one of cross_entropy, ppo"],
    ["lora_config.rank must be at most 256", "rank must be at most 256"],
    ["data[3].loss_fn_inputs.target_tokens is missing", "data[3].lossFnInputs.targetTokens is missing"],
    ["loss_fn_config.beta is unknown", "config.beta is unknown"],
    ["prompt_logprobs_last_n needs prompt_logprobs", "promptLogprobsLastN needs includePromptLogprobs"],
    [
      "model my_base_model_2 at tinker://a_b/sampler_weights/c",
      "model my_base_model_2 at tinker://a_b/sampler_weights/c",
    ],
  ])("%s", (server, user) => {
    expect(inUsersWords(server)).toBe(user);
  });

  it("are turned back for clients of other languages", () => {
    expect(inWireWords("samplingParams.maxTokens must be a positive integer; did you mean topK?")).toBe(
      "sampling_params.max_tokens must be a positive integer; did you mean top_k?",
    );
    expect(inWireWords("TensorData of a ModelInput, iPhone")).toBe("TensorData of a ModelInput, iPhone");
  });
});
