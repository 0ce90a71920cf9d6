// A random model of some ten thousand parameters: a training step takes a millisecond, and bits tell as much as in a large one.

import { createWasmKernels } from "../../../dist/local/engine/kernels/wasm-kernels.node.js";
import { FullTrainer } from "../../../scripts/full-trainer.mjs";

export const TINY_MODEL = "faults/tiny";
export const TINY_VOCABULARY = 96;

export async function writeTinyModel(folder) {
  const kernels = createWasmKernels({ threads: 1, relaxedSimd: false });
  const config = {
    model_type: "qwen3",
    rms_norm_eps: 1e-6,
    rope_theta: 1e4,
    hidden_act: "silu",
    tie_word_embeddings: true,
    hidden_size: 32,
    num_hidden_layers: 1,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 8,
    intermediate_size: 64,
    vocab_size: TINY_VOCABULARY,
    max_position_embeddings: 128,
  };
  await FullTrainer.create(kernels, config, { seed: 1, deviation: 0.2 }).save(folder, { dtype: "F32" });
  await kernels.close();
}
