import { describe, expect, it } from "vitest";
import { parseModelConfig } from "./model-config.js";
import { inverseFrequencies } from "./rope.js";

const llama = {
  model_type: "llama",
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  intermediate_size: 128,
  vocab_size: 100,
};
const parse = (changes: object) => parseModelConfig({ ...llama, ...changes }, "folder");

describe("config.json", () => {
  it("fills in what older files leave out", () => {
    expect(parse({})).toMatchObject({
      kvHeads: 4,
      headDim: 16,
      ropeTheta: 10000,
      ropeScaling: undefined,
      tiedHead: false,
      qkNorm: false,
      qkvBias: false,
      outputBias: false,
      eosTokenIds: [],
    });
  });

  it("knows the families apart", () => {
    expect(parse({ model_type: "qwen3", head_dim: 32 })).toMatchObject({
      qkNorm: true,
      headDim: 32,
      qkvBias: false,
    });
    expect(parse({ model_type: "qwen2" })).toMatchObject({ qkNorm: false, qkvBias: true, outputBias: false });
    expect(parse({ attention_bias: true })).toMatchObject({ qkvBias: true, outputBias: true });
  });

  it("reads rope settings in the old and the new spelling", () => {
    const scaling = {
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    };
    const old = parse({ rope_theta: 5e5, rope_scaling: { type: "llama3", ...scaling } });
    const current = parse({ rope_parameters: { rope_type: "llama3", rope_theta: 5e5, ...scaling } });
    expect(old).toEqual(current);
    expect(old.ropeTheta).toBe(5e5);
    const [plain, scaled] = [inverseFrequencies({ ...old, ropeScaling: undefined }), inverseFrequencies(old)];
    expect(scaled[0]).toBe(plain[0]);
    expect(scaled.at(-1)! / plain.at(-1)!).toBeCloseTo(1 / 8, 5);
    const linear = parse({ rope_scaling: { type: "linear", factor: 4 } });
    expect(inverseFrequencies(linear)[0]).toBeCloseTo(0.25, 6);
  });

  it("takes transformers' defaults where a family has its own, and its word where a file says a thing twice", () => {
    expect(parse({ model_type: "qwen3" }).headDim).toBe(128);
    expect(
      parse({ rope_theta: 7, rope_parameters: { rope_type: "default", rope_theta: 1e6 } }).ropeTheta,
    ).toBe(1e6);
    expect(parse({ model_type: "mistral", sliding_window: null, max_position_embeddings: 8192 }).arch).toBe(
      "mistral",
    );
  });

  it("rounds frequencies as PyTorch does: far positions turn by many times the difference", () => {
    const frequencies = inverseFrequencies({
      ...parse({ head_dim: 128, rope_theta: 1e6 }),
      ropeScaling: undefined,
    });
    // 1 / (1e6 ** (torch.arange(0, 128, 2).float() / 128))
    expect([1, 3, 7, 10, 11, 12].map((index) => frequencies[index])).toEqual([
      0.8058422207832336, 0.5232991576194763, 0.22067339718341827, 0.11547820270061493, 0.09305720031261444,
      0.07498941570520401,
    ]);
  });

  it.each([
    [
      { model_type: "gpt2" },
      /config.json: model_type gpt2 is not supported, only llama, mistral, qwen2, qwen3 are$/,
    ],
    [{ hidden_size: "64" }, /hidden_size/],
    [{ hidden_act: "gelu" }, /hidden_act gelu is not supported/],
    [{ mlp_bias: true }, /mlp_bias is not supported/],
    [{ rope_scaling: { rope_type: "yarn", factor: 2 } }, /rope_scaling of type yarn is not supported/],
    [{ num_key_value_heads: 3 }, /num_key_value_heads 3 is not supported/],
    [{ model_type: "mistral", sliding_window: 100 }, /sliding-window attention is not supported/],
    [
      { model_type: "mistral", sliding_window: 100, use_sliding_window: false },
      /sliding-window attention is not supported/,
    ],
    [{ model_type: "mistral", max_position_embeddings: 8192 }, /sliding-window attention is not supported/],
    [
      { model_type: "qwen3", sliding_window: 100, layer_types: ["full_attention", "sliding_attention"] },
      /sliding-window attention is not supported/,
    ],
    [{ layer_types: ["linear_attention"] }, /a layer of type linear_attention is not supported/],
    [{ rope_scaling: { type: "linear" } }, /rope_scaling of type linear without factor is not supported/],
    [{ rope_parameters: { rope_type: "llama3", factor: 8 } }, /llama3 without low_freq_factor/],
    [{ partial_rotary_factor: 0.5 }, /partial_rotary_factor 0.5 is not supported/],
    [{ quantization_config: { quant_method: "fp8" } }, /quantization_config/],
  ])("refuses %j by name", (changes, message) => {
    expect(() => parse(changes)).toThrow(message);
  });
});
