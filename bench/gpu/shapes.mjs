// The models that the benches of the GPU train and sample: shapes of real ones with random weights.
const qwen3 = (hidden, layers, heads, intermediate, isTied) => ({
  model_type: "qwen3",
  hidden_size: hidden,
  num_hidden_layers: layers,
  num_attention_heads: heads,
  num_key_value_heads: 8,
  head_dim: 128,
  intermediate_size: intermediate,
  vocab_size: 151_936,
  tie_word_embeddings: isTied,
  max_position_embeddings: 40_960,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  hidden_act: "silu",
});

/** By the name of the model that has the shape; `tiny` tries the benches themselves. */
export const SHAPES = {
  "Qwen3-0.6B": qwen3(1024, 28, 16, 3072, true),
  "Qwen3-8B": qwen3(4096, 36, 32, 12_288, false),
  tiny: {
    ...qwen3(64, 2, 4, 128, true),
    num_key_value_heads: 2,
    head_dim: 16,
    vocab_size: 512,
    max_position_embeddings: 512,
  },
};
