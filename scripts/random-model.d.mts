import type { FloatDtype } from "../src/checkpoints/safetensors.js";
import type { ModelFiles } from "../src/local/engine/model/model-files.js";
/** Uniform in [0, 1), the same for the same seed. */
export declare function seededRandom(seed: number): () => number;
/** Of a normal distribution. */
export declare function normal(random: () => number): number;
/** What a Hugging Face folder with this `config.json` names its tensors, with their shapes. */
export declare function modelTensors(config: Record<string, unknown>): Map<string, number[]>;
/** A model whose tensors are made as they are read: norms are around 1, all else around 0. */
export declare function randomModel(
  config: Record<string, unknown>,
  options?: { dtype?: FloatDtype; deviation?: number; seed?: number; values?: number },
): ModelFiles;
