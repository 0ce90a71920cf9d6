import { mean, passAtK, standardError } from "./statistics.js";
import type { Task } from "./tasks.js";

/** How an example came out: graded; cut off before it ended; answered, but nobody can tell how well; or failed. */
export type Outcome = "graded" | "truncated" | "ungraded" | "error";

/** One answer to one task. */
export interface ExampleResult {
  /** The task's. */
  readonly id: string;
  /** Which of the answers to this task, from 0. */
  readonly sample: number;
  readonly outcome: Outcome;
  /** From 0 to 1; 0 for whatever was not graded. */
  readonly reward: number;
  /** What the model said, without thoughts; empty where it failed. */
  readonly text: string;
  /** What went wrong, where something did. */
  readonly error: string | undefined;
  readonly metrics: Readonly<Record<string, number>>;
  readonly logs: Readonly<Record<string, unknown>>;
  readonly promptTokens: number;
  readonly tokens: number;
}

/** An answered task as the results keep it. */
export interface Answered {
  readonly task: Task;
  readonly index: number;
  /** What the model read, as text. */
  readonly prompt: string;
  readonly examples: readonly (ExampleResult & { readonly thinking: string })[];
  readonly seconds: number;
}

/** How good a model is at its tasks. Every example is right, wrong, truncated or an error. */
export interface EvaluationResult {
  readonly name: string;
  /** The mean of all rewards; 0 for what was cut off, failed or could not be graded. */
  readonly score: number;
  /** The mean of the rewards that were given. Thinking models that run out of tokens are told apart by it. */
  readonly scoreCompleted: number;
  /** Of the score, over tasks; undefined for a single task. */
  readonly standardError: number | undefined;
  /** Tasks times samples. */
  readonly numExamples: number;
  /** With the whole reward, 1. */
  readonly numCorrect: number;
  /** Failed, or not graded. */
  readonly numErrors: number;
  /** Those of the errors that were answered, but got no grade. */
  readonly numUngraded: number;
  /** Cut off at `maxTokens`, or too long for the context. */
  readonly numTruncated: number;
  /** By `k`; empty for one answer a task. */
  readonly passAtK: Readonly<Record<number, number>>;
  /** Tokens and turns, and the means of what the grader measured. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly seconds: number;
  readonly examples: readonly ExampleResult[];
}

export const isCorrect = ({ reward }: ExampleResult): boolean => reward >= 1;
export const isError = ({ outcome }: ExampleResult): boolean => outcome === "error" || outcome === "ungraded";

/** Everything that was measured, from the answers to each task. */
export function summarize(
  name: string,
  byTask: readonly (readonly ExampleResult[])[],
  ks: readonly number[],
  seconds: number,
): EvaluationResult {
  const examples = byTask.flat();
  const completed = examples.filter(({ outcome }) => outcome === "graded");
  const passRates = ks.map((k) => [
    k,
    mean(byTask.map((answers) => passAtK(answers.length, answers.filter(isCorrect).length, k))),
  ]);
  return {
    name,
    score: mean(examples.map(({ reward }) => reward)),
    scoreCompleted: mean(completed.map(({ reward }) => reward)),
    standardError: standardError(byTask.map((answers) => mean(answers.map(({ reward }) => reward)))),
    numExamples: examples.length,
    numCorrect: examples.filter(isCorrect).length,
    numErrors: examples.filter(isError).length,
    numUngraded: examples.filter(({ outcome }) => outcome === "ungraded").length,
    numTruncated: examples.filter(({ outcome }) => outcome === "truncated").length,
    passAtK: Object.fromEntries(passRates),
    metrics: { ...graderMetrics(completed), ...tokenMetrics(examples) },
    seconds,
    examples,
  };
}

/** The mean of each number over the answers that have it. */
function graderMetrics(examples: readonly ExampleResult[]): Record<string, number> {
  const values = new Map<string, number[]>();
  for (const { metrics } of examples) {
    for (const [key, value] of Object.entries(metrics)) {
      const known = values.get(key);
      if (known === undefined) values.set(key, [value]);
      else known.push(value);
    }
  }
  return Object.fromEntries([...values].map(([key, all]) => [key, mean(all)]));
}

/** "ac" is what the model does, "ob" what it observes. */
function tokenMetrics(examples: readonly ExampleResult[]): Record<string, number> {
  const answered = examples.filter(({ outcome }) => outcome !== "error");
  const turns = answered.length;
  const sampled = answered.reduce((sum, { tokens }) => sum + tokens, 0);
  const read = answered.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return {
    total_ac_tokens: sampled,
    total_ob_tokens: read,
    total_turns: turns,
    turns_per_episode: examples.length === 0 ? 0 : turns / examples.length,
    ...(turns > 0 && { ac_tokens_per_turn: sampled / turns, ob_tokens_per_turn: read / turns }),
  };
}
