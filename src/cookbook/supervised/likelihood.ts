import type { RendererTokenizer } from "../../renderers/index.js";

/** Scores of one example: the logprob of each target token, and its weight. */
export interface ScoredTokens {
  readonly logprobs: ArrayLike<number>;
  readonly weights: ArrayLike<number>;
  readonly targetTokens: ArrayLike<number>;
}

/** The mean negative log-likelihood of a token over a whole batch, by the weights; NaN where nothing has a weight. */
export function meanNll(batch: readonly Pick<ScoredTokens, "logprobs" | "weights">[]): number {
  let sum = 0;
  let total = 0;
  for (const { logprobs, weights } of batch) {
    for (let index = 0; index < weights.length; index += 1) {
      const weight = weights[index]!;
      total += weight;
      // A token that does not count may be impossible: 0 times minus infinity is NaN.
      if (weight !== 0) sum += logprobs[index]! * weight;
    }
  }
  return total === 0 ? Number.NaN : -sum / total;
}

const UTF8 = new TextEncoder();

/**
 * Bits per byte of text, to compare models with different tokenizers. Counts trained tokens, without special tokens;
 * weights only say whether. NaN where there is no text.
 */
export function bitsPerByte(batch: readonly ScoredTokens[], tokenizer: RendererTokenizer): number {
  let nats = 0;
  let bytes = 0;
  for (const { logprobs, weights, targetTokens } of batch) {
    let run: number[] = [];
    const closeRun = () => {
      if (run.length > 0) bytes += UTF8.encode(tokenizer.decode(run)).length;
      run = [];
    };
    for (let index = 0; index < weights.length; index += 1) {
      const token = targetTokens[index]!;
      if (weights[index]! > 0 && !isSpecial(token, tokenizer)) {
        nats -= logprobs[index]!;
        run.push(token);
      } else closeRun();
    }
    closeRun();
  }
  return bytes === 0 ? Number.NaN : nats / (Math.LN2 * bytes);
}

const specialTokens = new WeakMap<RendererTokenizer, Map<number, boolean>>();

/** A token that a text without special tokens does not show. */
function isSpecial(token: number, tokenizer: RendererTokenizer): boolean {
  const known = specialTokens.get(tokenizer) ?? new Map<number, boolean>();
  specialTokens.set(tokenizer, known);
  const found = known.get(token);
  if (found !== undefined) return found;
  const special =
    tokenizer.decode([token]) !== "" && tokenizer.decode([token], { skipSpecialTokens: true }) === "";
  known.set(token, special);
  return special;
}
