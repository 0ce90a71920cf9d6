/** How much scratch memory a training step takes, so that it is refused before it has changed anything. */

import { widthsOf } from "../model/decoder.js";
import type { ModelConfig } from "../model/model-config.js";
import { headChunkRows } from "./loss-head.js";

/** Activations of one step take at most about this, unless a single sequence takes more. */
const stepBytes = 512 << 20;

/** Floats that a step over `rows` tokens takes at most, forward and backward together. */
export function stepFloats(config: ModelConfig, rank: number, rows: number, targetsPerToken: number): number {
  const { hiddenSize, intermediateSize, heads, kvHeads, layers, vocabSize } = config;
  const { query, key, qkv } = widthsOf(config);
  const kept =
    4 * hiddenSize + qkv + 2 * query + key + 3 * intermediateSize + 2 * heads + kvHeads + 2 + 7 * rank;
  const always = layers * kept + 3 * hiddenSize + 2 * targetsPerToken + 8;
  const upper = 3 * intermediateSize + hiddenSize + 2 * rank;
  const lower = query + key + qkv + hiddenSize + 3 * rank;
  // The rows of the last layer that have a gradient are taken out of the others.
  const taken = 5 * hiddenSize + 2 * query + 3 * intermediateSize + 4 * rank + 4;
  const backward = rows * (hiddenSize + query + taken + Math.max(upper, lower));
  const chunk = headChunkRows(rows, vocabSize);
  const head = chunk * (2 * vocabSize + 2 * hiddenSize + 4 * rank + 4 * targetsPerToken + 4);
  // Every buffer is rounded up to a multiple of 64 bytes.
  const rounding = 16 * (32 * layers + 128);
  return rows * always + Math.max(backward, head) + rounding;
}

/** Tokens that may share a step. */
export function affordableTokens(config: ModelConfig, rank: number): number {
  const sample = 1024;
  return Math.max(1, Math.floor((sample * stepBytes) / (4 * stepFloats(config, rank, sample, 1))));
}
