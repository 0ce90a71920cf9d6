import { copyFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FullTrainer } from "../../scripts/full-trainer.mjs";
import { defaultModel } from "../../src/local/default-model.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";

export const END = 511;

/** A folder with nano's tokens and weights by chance, so that nothing pushes towards JSON; the caller removes it. */
export async function randomModel(seed: number, positions = 2048): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "random-model-"));
  const kernels = createWasmKernels({ threads: 1 });
  const shape = {
    model_type: "qwen3",
    hidden_size: 32,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 16,
    intermediate_size: 64,
    vocab_size: 512,
    max_position_embeddings: positions,
    tie_word_embeddings: true,
    eos_token_id: END,
  };
  await FullTrainer.create(kernels, shape, { seed, deviation: 0.3 }).save(folder);
  await kernels.close();
  copyFileSync(join(defaultModel.path, "tokenizer.json"), join(folder, "tokenizer.json"));
  return folder;
}
