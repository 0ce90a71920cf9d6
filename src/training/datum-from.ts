import { ValidationError } from "../errors.js";
import {
  chunkLength,
  Datum,
  ModelInput,
  type ModelInputChunk,
  type ModelInputLike,
  type TokensLike,
} from "../wire/index.js";

/**
 * Teaches the answer to a prompt, for `cross_entropy`: the prompt is read and weighs 0, each token of the answer weighs
 * 1. With an empty prompt (`[]`) all of a text is trained on except its first token, which has no context.
 */
export function datumFromAnswer(prompt: ModelInputLike, answer: ModelInputLike): Datum {
  const { modelInput, targetTokens, firstTaught } = nextTokens(prompt, ModelInput.from(answer, "answer"));
  const weights = new Float32Array(targetTokens.length).fill(1, firstTaught);
  return new Datum({ modelInput, lossFnInputs: { targetTokens, weights } });
}

/**
 * Makes a sampled sequence likelier (a positive advantage) or less likely (a negative one), for `importance_sampling`,
 * `ppo`, `cispo` and `dro`. The prompt has no advantage: it was given, not chosen.
 */
export function datumFromSample(
  prompt: ModelInputLike,
  sample: { readonly tokens: TokensLike; readonly logprobs: ArrayLike<number> | null },
  advantage: number,
): Datum {
  if (!Number.isFinite(advantage)) {
    throw new ValidationError("advantage", `advantage must be a finite number, got ${String(advantage)}`);
  }
  const answer = ModelInput.from(sample.tokens, "sample.tokens");
  const { modelInput, targetTokens, firstTaught } = nextTokens(prompt, answer, "sample.tokens");
  const sampled = sample.logprobs;
  if (sampled?.length !== answer.length) {
    throw new ValidationError(
      "sample.logprobs",
      `sample.logprobs must have one logprob for each of the ${answer.length} tokens, got ${sampled?.length ?? "none"}`,
    );
  }
  const advantages = new Float32Array(targetTokens.length).fill(advantage, firstTaught);
  const logprobs = new Float32Array(targetTokens.length);
  // The first token after an empty prompt is not a target.
  logprobs.set(Float32Array.from(sampled).slice(firstTaught - targetTokens.length), firstTaught);
  return new Datum({ modelInput, lossFnInputs: { targetTokens, logprobs, advantages } });
}

/** The input of a datum and its target at each position; tokens from `firstTaught` on are trained on. */
function nextTokens(promptLike: ModelInputLike, answer: ModelInput, answerField = "answer") {
  const prompt = ModelInput.from(promptLike, "prompt");
  if (!answer.isText) {
    throw new ValidationError(answerField, `${answerField} must be text alone: only tokens can be predicted`);
  }
  const promptLength = prompt.length;
  const length = promptLength + answer.length;
  if (answer.length === 0 || length < 2) {
    const expected =
      promptLength === 0 ? "at least two tokens, as the prompt is empty" : "at least one token";
    throw new ValidationError(answerField, `${answerField} must have ${expected}, got ${answer.length}`);
  }
  const tokens = tokensAt([...prompt.chunks, ...answer.chunks]);
  const modelInput = prompt.isText
    ? ModelInput.fromInts(tokens.slice(0, -1))
    : answer.length === 1
      ? prompt
      : prompt.append({ type: "encoded_text", tokens: tokens.slice(promptLength, -1) });
  return { modelInput, targetTokens: tokens.slice(1), firstTaught: Math.max(0, promptLength - 1) };
}

/** The token at each position. Images and audio are not tokens: the zeros at their places are not trained on. */
export function tokensAt(chunks: readonly ModelInputChunk[]): Int32Array {
  const tokens = new Int32Array(chunks.reduce((length, chunk) => length + chunkLength(chunk), 0));
  let position = 0;
  for (const chunk of chunks) {
    if (chunk.type === "encoded_text") tokens.set(chunk.tokens, position);
    position += chunkLength(chunk);
  }
  return tokens;
}
