import type { SamplingClient } from "tinkerts";
import { openLlamaModel } from "./llama-cpp.js";

/** How far the result of an export and its original agree. */
export interface Agreement {
  readonly prompts: number;
  readonly tokens: number;
  /** Tokens of the original that are the likeliest of the result, too. */
  readonly sameTokens: number;
  /** By how much the logprobs of these tokens differ, on average. */
  readonly meanDifference: number;
  readonly maxDifference: number;
}

const PROMPTS = [
  "What is the capital of France?",
  "Write a sentence about the sea.",
  "What is 17 + 25?",
  "Translate to German: Good morning.",
  "List three colors.",
  "def add(a, b):",
  "Explain in one sentence why the sky is blue.",
  "Name an animal that can fly.",
  "Once upon a time",
  'Answer in JSON: {"city": "Rome", "country": ?}',
];
const MAX_TOKENS = 24;
const CONTEXT_TOKENS = 1024;

/** Lets the original answer ten prompts, and scores its answers with a GGUF file of it. */
export async function checkExport(
  file: string,
  original: SamplingClient,
  signal: AbortSignal,
): Promise<Agreement> {
  await using llama = await openLlamaModel(file, CONTEXT_TOKENS);
  const tokenizer = await original.getTokenizer({ signal });
  const differences: number[] = [];
  let sameTokens = 0;
  for (const prompt of PROMPTS) {
    const written = tokenizer.hasChatTemplate
      ? tokenizer.applyChatTemplate([{ role: "user", content: prompt }], { addGenerationPrompt: true })
      : tokenizer.encode(prompt);
    const opening = [...written].slice(-(CONTEXT_TOKENS - MAX_TOKENS));
    const { sequences } = await original.sample(
      { prompt: opening, samplingParams: { temperature: 0, maxTokens: MAX_TOKENS } },
      { signal },
    );
    const { tokens, logprobs } = sequences[0]!;
    const scores = (await llama.score([...opening, ...tokens])).slice(-tokens.length);
    for (const [index, { likeliest, logprob }] of scores.entries()) {
      if (likeliest === tokens[index]) sameTokens += 1;
      differences.push(Math.abs(logprob - logprobs![index]!));
    }
  }
  const tokens = differences.length;
  return {
    prompts: PROMPTS.length,
    tokens,
    sameTokens,
    meanDifference: differences.reduce((sum, difference) => sum + difference, 0) / tokens,
    maxDifference: Math.max(...differences),
  };
}
