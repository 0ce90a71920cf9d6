import type { Message, Renderer } from "../../renderers/index.js";
import { wrongValue } from "../../wire/index.js";
import { chat } from "../chat/index.js";
import { checkWhole } from "../data/rows.js";
import type { Evaluator } from "../evaluation/index.js";
import { mean, standardError } from "../evaluation/statistics.js";
import { RolloutPool } from "../rollouts/index.js";
import type { Comparison } from "./comparison.js";
import { bothWays, type Compare } from "./preference-model.js";

/** What new answers are compared with, and by whom. */
export interface WinRateOptions {
  readonly compare: Compare;
  /** A new answer to each `prompt` stands against its `completionA`. */
  readonly comparisons: readonly Pick<Comparison, "prompt" | "completionA">[];
  /** Of the model that is measured. Default: what fits its base model. */
  readonly renderer?: Renderer | string | undefined;
  /** Tokens of an answer. Default: what the model has room for. */
  readonly maxTokens?: number | undefined;
  /** Of the samples. Default: 1. */
  readonly temperature?: number | undefined;
  /** Answers under way at a time. Default: 64. */
  readonly concurrency?: number | undefined;
  /** What is compared of an answer. Default: its text, without thoughts. */
  readonly prepare?: ((message: Message) => Message) | undefined;
}

/** How often answers of the model are better than given ones, as `win_rate` from 0 to 1, with its `stderr`. */
export function winRateEvaluator({
  compare,
  comparisons,
  renderer,
  maxTokens,
  temperature = 1,
  concurrency = 64,
  prepare,
}: WinRateOptions): Evaluator {
  if (typeof compare !== "function") throw wrongValue("compare", "a function of a comparison", compare);
  if (!Array.isArray(comparisons) || comparisons.length === 0)
    throw wrongValue("comparisons", "a list of at least one", comparisons);
  checkWhole("concurrency", concurrency, 1);
  const judge = bothWays(compare);
  return {
    name: "win_rate",
    evaluate: async ({ sampler, signal }) => {
      const pool = new RolloutPool({ maxRollouts: concurrency });
      const rates = await Promise.all(
        comparisons.map(({ prompt, completionA }, seed) =>
          pool.run(async () => {
            const settings = { renderer, maxTokens, temperature, seed, signal };
            const { message, text } = await chat(sampler, prompt, settings);
            const answer = prepare?.(message) ?? { role: "assistant", content: text };
            const score = await judge({ prompt, completionA, completionB: [answer] }, { signal });
            return (1 + score) / 2;
          }, signal),
        ),
      );
      return { win_rate: mean(rates), stderr: standardError(rates) ?? 0 };
    },
  };
}
