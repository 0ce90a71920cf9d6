import { copyFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultModel } from "../../src/local/default-model.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { FullTrainer } from "../../src/local/engine/training/full-trainer.node.js";

export const END = 511;

/** A folder with nano's tokens and weights by chance, so that nothing pushes towards JSON; whoever asks for it removes it. */
export async function randomModel(seed: number): Promise<string> {
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
    max_position_embeddings: 2048,
    tie_word_embeddings: true,
    eos_token_id: END,
  };
  await FullTrainer.create(kernels, shape, { seed, deviation: 0.3 }).save(folder);
  await kernels.close();
  copyFileSync(join(defaultModel.path, "tokenizer.json"), join(folder, "tokenizer.json"));
  return folder;
}
