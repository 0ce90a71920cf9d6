import type { EvaluationResult, ExampleResult } from "../../cookbook/evaluation/index.js";
import type { Task } from "../../cookbook/evaluation/tasks.js";
import { textOf } from "../../renderers/index.js";
import type { CommandContext } from "../context.js";
import { cutText, plainColumns, printable, printableLines, printItem, printJson } from "../output/index.js";

const MAX_WRONG_SHOWN = 3;

/** Prints results: sentences for people, every example for programs. */
export function report(context: CommandContext, result: EvaluationResult, tasks: readonly Task[]): void {
  const { format } = context.globals();
  if (format === "json") printJson(context, result);
  else if (format === "csv") printItem(context, result, COLUMNS);
  else
    for (const line of sentences(result, tasks, widthOf(context)))
      context.stdout.write(`${printableLines(line)}\n`);
}

const COLUMNS = [
  ...plainColumns<EvaluationResult>("name", "score", "scoreCompleted", "standardError", "numExamples"),
  ...plainColumns<EvaluationResult>("numCorrect", "numErrors", "numUngraded", "numTruncated", "seconds"),
];

const percent = (share: number) => `${(100 * share).toFixed(1)}%`;

function sentences(result: EvaluationResult, tasks: readonly Task[], width: number): string[] {
  const { name, score, scoreCompleted, standardError, numExamples, numCorrect } = result;
  const { numErrors, numUngraded, numTruncated } = result;
  const range = standardError === undefined ? "" : ` ± ${percent(standardError)}`;
  const lines = [`${name}: ${percent(score)}${range}, ${numCorrect} of ${numExamples} answers right`];
  const passes = Object.entries(result.passAtK).map(([k, rate]) => `pass@${k} ${percent(rate)}`);
  if (passes.length > 0) lines.push(`  ${passes.join(", ")}`);
  const failed = numErrors - numUngraded;
  const others = [
    ...(numTruncated > 0 ? [`${numTruncated} cut off`] : []),
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(numUngraded > 0 ? [`${numUngraded} without a verdict`] : []),
  ];
  const hasOthers = numTruncated + numErrors < numExamples;
  const rest = hasOthers ? `; ${percent(scoreCompleted)} of the others` : "";
  if (others.length > 0) lines.push(`  ${others.join(", ")}${rest}`);
  const failure = firstFailure(result);
  if (failure !== undefined) lines.push(cutText(`  the first failure: ${failure}`, width));
  return [...lines, ...wrongAnswers(result.examples, tasks, width)];
}

/** Why an answer failed, if it did; one that was only cut off did not fail. */
function firstFailure({ examples }: EvaluationResult): string | undefined {
  const reasons = examples.map(reasonOf);
  return reasons.find((reason) => reason !== undefined);
}

/** The reason, if nothing succeeded. */
export function totalFailure({ examples }: EvaluationResult): string | undefined {
  const reasons = examples.map(reasonOf);
  return reasons.includes(undefined) ? undefined : reasons[0];
}

function reasonOf({ outcome, error, logs }: ExampleResult): string | undefined {
  if (outcome === "error") return error;
  const { refused } = logs as { readonly refused?: string };
  return outcome === "truncated" ? refused : undefined;
}

function wrongAnswers(examples: readonly ExampleResult[], tasks: readonly Task[], width: number): string[] {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  // One answer per task.
  const wrong = new Map(
    examples.filter(({ outcome, reward }) => outcome === "graded" && reward < 1).map((one) => [one.id, one]),
  );
  if (wrong.size === 0) return [];
  const shown = [...wrong.values()].slice(0, MAX_WRONG_SHOWN).map(({ id, text }) => {
    const task = byId.get(id)!;
    const asked = textOf(task.messages.at(-1)!);
    const expected = task.answer === undefined ? "" : `  (right: ${task.answer})`;
    return cutText(printable(`  ${asked}  →  ${text.trim()}${expected}`), width, "middle");
  });
  return ["", "Wrong, for example:", ...shown];
}

function widthOf({ stdout }: CommandContext): number {
  return stdout.isTTY ? stdout.columns || 80 : 200;
}
