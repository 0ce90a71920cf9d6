// The shape of tinkerts/nano: Qwen3, 2.3 million parameters.
export const MODEL_FOLDER = new URL("../../models/nano/", import.meta.url);
export const VOCABULARY_SIZE = 512;
export const CONTEXT_LENGTH = 1024;

/** The content of config.json. */
export const modelConfig = ({ endOfText, turnEnd }) => ({
  architectures: ["Qwen3ForCausalLM"],
  attention_bias: false,
  attention_dropout: 0,
  bos_token_id: null,
  eos_token_id: turnEnd,
  pad_token_id: endOfText,
  head_dim: 32,
  hidden_act: "silu",
  hidden_size: 256,
  initializer_range: 0.02,
  intermediate_size: 704,
  max_position_embeddings: CONTEXT_LENGTH,
  model_type: "qwen3",
  num_attention_heads: 8,
  num_hidden_layers: 3,
  num_key_value_heads: 4,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 10000,
  sliding_window: null,
  tie_word_embeddings: true,
  torch_dtype: "float16",
  use_cache: true,
  use_sliding_window: false,
  vocab_size: VOCABULARY_SIZE,
});
