import type { Message, Renderer } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import { CHAT_OPTIONS, chat } from "../chat/index.js";
import type { Evaluator } from "../evaluation/index.js";
import { meanOf, standardError } from "../evaluation/statistics.js";
import { RolloutPool } from "../rollouts/index.js";
import type { Comparison } from "./comparison.js";
import { bothWays, type Compare } from "./preference-model.js";
import { compareField } from "./tournament.js";

/** Options of the win rate: the answers to compare with, and the judge. */
export interface WinRateOptions {
  readonly compare: Compare;
  /** Comparisons; a new answer to each `prompt` competes with its `completionA`. */
  readonly comparisons: readonly Pick<Comparison, "prompt" | "completionA">[];
  /** Renderer of the measured model. Default: the one that fits its base model. */
  readonly renderer?: Renderer | string | undefined;
  /** Most tokens of an answer. Default: the rest of the context. */
  readonly maxTokens?: number | undefined;
  /** Sampling temperature. Default: 1. */
  readonly temperature?: number | undefined;
  /** Answers that are sampled at the same time. Default: 64. */
  readonly concurrency?: number | undefined;
  /** Prepares an answer for comparison. Default: its text, without thoughts. */
  readonly prepare?: ((message: Message) => Message) | undefined;
}

/** The option table of `winRateEvaluator`. */
export const WIN_RATE_OPTIONS = f.optionTable({
  compare: f.option(compareField, "says which of two answers is better"),
  comparisons: f.option(
    f.list(f.opaque as f.Field<WinRateOptions["comparisons"][number]>, { least: 1 }),
    "prompts with the answers to compare with",
  ),
  renderer: CHAT_OPTIONS.renderer,
  maxTokens: CHAT_OPTIONS.maxTokens,
  temperature: CHAT_OPTIONS.temperature,
  concurrency: f.option(f.withDefault(f.positiveInteger, 64), "answers at a time"),
  prepare: f.option(
    f.optional(f.functionOf<NonNullable<WinRateOptions["prepare"]>>()),
    "prepares an answer for comparison",
    { otherwise: "its text, without thoughts" },
  ),
} satisfies f.OptionsOf<WinRateOptions>);

/** Measures how often the model's answers are better than given ones, as `win_rate` from 0 to 1, with its `stderr`. */
export function winRateEvaluator(options: WinRateOptions): Evaluator {
  const checked = WIN_RATE_OPTIONS.check(options, "winRateEvaluator");
  const { compare, comparisons, concurrency, prepare, renderer, maxTokens, temperature } = checked;
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
      return { win_rate: meanOf(rates), stderr: standardError(rates) ?? 0 };
    },
  };
}
