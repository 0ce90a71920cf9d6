// The shape of tinkerts/nano: Qwen3, 2.3 million parameters.
import { recipe } from "./recipe.mjs";

export const MODEL_FOLDER = new URL("../../models/nano/", import.meta.url);
export const VOCABULARY_SIZE = 512;
/** Twice the length of the training rows; evaluate.mjs measures how well the second half is predicted. */
export const CONTEXT_LENGTH = 512;

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
  initializer_range: recipe.deviation,
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

/** The weights to begin with, by name: normal matrices, each from a stream of its own, and norms of one. */
export function initialTensors(config, normalArray) {
  const { hidden_size: hidden, intermediate_size: inner, head_dim: headDim } = config;
  const [query, key] = [config.num_attention_heads * headDim, config.num_key_value_heads * headDim];
  const tensors = {};
  const matrix = (name, outputs, inputs) => {
    const stream = Object.keys(tensors).length;
    const data = normalArray(outputs * inputs, recipe.deviation, recipe.seed, stream);
    tensors[name] = { shape: [outputs, inputs], data };
  };
  const ones = (name, length) => {
    tensors[name] = { shape: [length], data: new Float32Array(length).fill(1) };
  };
  matrix("model.embed_tokens.weight", config.vocab_size, hidden);
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const prefix = `model.layers.${layer}`;
    ones(`${prefix}.input_layernorm.weight`, hidden);
    matrix(`${prefix}.self_attn.q_proj.weight`, query, hidden);
    matrix(`${prefix}.self_attn.k_proj.weight`, key, hidden);
    matrix(`${prefix}.self_attn.v_proj.weight`, key, hidden);
    matrix(`${prefix}.self_attn.o_proj.weight`, hidden, query);
    ones(`${prefix}.self_attn.q_norm.weight`, headDim);
    ones(`${prefix}.self_attn.k_norm.weight`, headDim);
    ones(`${prefix}.post_attention_layernorm.weight`, hidden);
    matrix(`${prefix}.mlp.gate_proj.weight`, inner, hidden);
    matrix(`${prefix}.mlp.up_proj.weight`, inner, hidden);
    matrix(`${prefix}.mlp.down_proj.weight`, hidden, inner);
  }
  ones("model.norm.weight", hidden);
  return tensors;
}
