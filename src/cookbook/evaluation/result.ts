import { meanMetrics, meanOf, passAtK, standardError } from "./statistics.js";
import type { Task } from "./tasks.js";

/** Outcome of an example: graded, cut off, answered without a grade, or failed. */
export type Outcome = "graded" | "truncated" | "ungraded" | "error";

/** One answer to one task. */
export interface ExampleResult {
  /** Id of the task. */
  readonly id: string;
  /** Number of the answer among those to this task, from 0. */
  readonly sample: number;
  readonly outcome: Outcome;
  /** Reward from 0 to 1; 0 if the answer was not graded. */
  readonly reward: number;
  /** Text of the answer, without thoughts; empty if the example failed. */
  readonly text: string;
  /** Message of the error, if the example failed. */
  readonly error: string | undefined;
  readonly metrics: Readonly<Record<string, number>>;
  readonly logs: Readonly<Record<string, unknown>>;
  readonly promptTokens: number;
  readonly tokens: number;
}

/** An answered task in the results. */
export interface Answered {
  readonly task: Task;
  readonly index: number;
  /** The prompt as text. */
  readonly prompt: string;
  readonly examples: readonly (ExampleResult & { readonly thinking: string })[];
  readonly seconds: number;
}

/** Scores of a model on its tasks. Every example is right, wrong, truncated or an error. */
export interface EvaluationResult {
  readonly name: string;
  /** Mean of all rewards; answers that were cut off, failed or could not be graded count as 0. */
  readonly score: number;
  /** Mean of the rewards of graded answers only. It differs from `score` for thinking models that run out of tokens. */
  readonly scoreCompleted: number;
  /** Standard error of the score over tasks; undefined for a single task. */
  readonly standardError: number | undefined;
  /** Number of examples: tasks times samples. */
  readonly numExamples: number;
  /** Number of examples with the full reward, 1. */
  readonly numCorrect: number;
  /** Number of examples that failed or were not graded. */
  readonly numErrors: number;
  /** Number of errors that have an answer but no grade. */
  readonly numUngraded: number;
  /** Number of answers cut off at `maxTokens`, or too long for the context. */
  readonly numTruncated: number;
  /** pass@k by `k`; empty with one answer per task. */
  readonly passAtK: Readonly<Record<number, number>>;
  /** Tokens and turns, and the means of the grader's metrics. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly seconds: number;
  readonly examples: readonly ExampleResult[];
}

export const isCorrect = ({ reward }: ExampleResult): boolean => reward >= 1;
export const isError = ({ outcome }: ExampleResult): boolean => outcome === "error" || outcome === "ungraded";

/** Summarizes the answers to all tasks. */
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
    meanOf(byTask.map((answers) => passAtK(answers.length, answers.filter(isCorrect).length, k))),
  ]);
  return {
    name,
    score: meanOf(examples.map(({ reward }) => reward)),
    scoreCompleted: meanOf(completed.map(({ reward }) => reward)),
    standardError: standardError(byTask.map((answers) => meanOf(answers.map(({ reward }) => reward)))),
    numExamples: examples.length,
    numCorrect: examples.filter(isCorrect).length,
    numErrors: examples.filter(isError).length,
    numUngraded: examples.filter(({ outcome }) => outcome === "ungraded").length,
    numTruncated: examples.filter(({ outcome }) => outcome === "truncated").length,
    passAtK: Object.fromEntries(passRates),
    metrics: { ...meanMetrics(completed.map(({ metrics }) => metrics)), ...tokenMetrics(examples) },
    seconds,
    examples,
  };
}

/** "ac" are the model's tokens, "ob" those it reads. */
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
