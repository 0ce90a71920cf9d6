import type { MetricValue, RunMetrics } from "../../training/index.js";
import * as f from "../../wire/fields/index.js";
import { dollarText, shortCount } from "../costs/index.js";
import type { TrainingLogger } from "./logger.js";

/** Where lines are written: a terminal, a file, a test. */
export interface Screen {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

/** Where a console logger writes. */
export interface ConsoleLoggerOptions {
  /** Stream that shows the run. Default: stderr, or the console of a page. */
  readonly screen?: Screen | undefined;
}

/** The option table of `consoleLogger`. */
export const CONSOLE_LOGGER_OPTIONS = f.optionTable({
  screen: f.option(f.optional(f.having<Screen>("a writable stream", "write")), "stream that shows the run"),
} satisfies f.OptionsOf<ConsoleLoggerOptions>);

/** Makes a logger that shows a run in about twenty lines and a line for each evaluation; a terminal also has a line that changes with each step. */
export function consoleLogger(options: ConsoleLoggerOptions = {}): TrainingLogger {
  const { screen = defaultScreen() } = CONSOLE_LOGGER_OPTIONS.check(options, "consoleLogger");
  const isLive = screen.isTTY === true;
  let steps = 0;
  let began: { atMs: number; step: number } | undefined;
  let isShown = false;
  let linesDue = 0;
  const clear = () => {
    if (isShown) screen.write("\r\x1b[K");
    isShown = false;
  };
  return {
    config: (config) => {
      // One logger may follow several runs, one after the other.
      began = undefined;
      linesDue = 0;
      steps = Number(config["steps"] ?? 0);
    },
    note: (text) => {
      clear();
      screen.write(`${text}\n`);
    },
    metrics: (metrics, step) => {
      const now = performance.now();
      // The first step waits until the model is created, so it says nothing about later steps.
      began ??= { atMs: now, step };
      const done = step - began.step;
      const secondsLeft = done === 0 ? undefined : ((now - began.atMs) / 1000 / done) * (steps - step - 1);
      const line = progressLine(metrics, step, steps, secondsLeft);
      const isMeasured = Object.keys(metrics).some(isEvaluation);
      const share = steps === 0 ? 1 : (step + 1) / steps;
      if (isMeasured || share >= linesDue) {
        linesDue = Math.floor(share * LINES) / LINES + 1 / LINES;
        clear();
        screen.write(`${line}\n`);
      } else if (isLive) {
        // A line that wraps cannot be erased.
        screen.write(`\r\x1b[K${line.slice(0, (screen.columns || 80) - 1)}`);
        isShown = true;
      }
    },
    close: clear,
  };
}

/** Number of lines that stay of a whole run. */
const LINES = 20;

/** Metrics of a step that the console shows, for each kind of training. */
const HEADLINES: readonly (readonly [label: string, metric: string])[] = [
  ["loss", "train_mean_nll"],
  ["loss", "dpo_loss"],
  ["accuracy", "accuracy"],
  ["teacher kl", "teacher_kl"],
  ["reward", "env/all/reward/total"],
];

function isEvaluation(metric: string): boolean {
  return /^(?:test|eval)\//.test(metric);
}

/** Metrics that the console leaves out, because it shows their total. */
function isDetail(metric: string): boolean {
  return metric === "test/bpb" || (metric.includes("/env/") && !metric.endsWith("/env/all/reward/total"));
}

/** How the measures of a run changed from its beginning to its end, as "reward 0.35 -> 0.61"; undefined if none did. */
export function beforeAndAfter(first: RunMetrics, last: RunMetrics): string | undefined {
  const measures = Object.keys(last).filter((name) => isEvaluation(name) && !isDetail(name));
  const shown = [...HEADLINES, ...measures.map((name) => [name, name] as const)].flatMap(([label, name]) => {
    const [before, after] = [first[name], last[name]];
    if (typeof before !== "number" || typeof after !== "number" || before === after) return [];
    return [`${label} ${rounded(before)} -> ${rounded(after)}`];
  });
  return shown.length === 0 ? undefined : shown.join("  ");
}

function rounded(value: number): string {
  return String(Number(value.toPrecision(3)));
}

function progressLine(
  metrics: RunMetrics,
  step: number,
  steps: number,
  secondsLeft: number | undefined,
): string {
  const width = String(steps).length;
  const isAfterLast = !HEADLINES.some(([, name]) => metrics[name] !== undefined);
  const parts = [isAfterLast ? `after step ${step}` : `step ${String(step + 1).padStart(width)}/${steps}`];
  const add = (label: string, value: MetricValue | undefined) => {
    if (typeof value === "number") parts.push(`${label} ${value.toFixed(4)}`);
  };
  for (const [label, name] of HEADLINES) {
    // A model that is only trained by its teacher has no rewards.
    const isUnrewarded = label === "reward" && metrics["teacher_kl"] !== undefined && metrics[name] === 0;
    if (!isUnrewarded) add(label, metrics[name]);
  }
  for (const [name, value] of Object.entries(metrics))
    if (isEvaluation(name) && !isDetail(name)) add(name, value);
  const used = usedText(metrics);
  if (used !== undefined) parts.push(used);
  if (!isAfterLast && secondsLeft !== undefined && secondsLeft > 0)
    parts.push(`${humanTime(secondsLeft)} left`);
  return parts.join("  ");
}

/** Cost of the run so far; its tokens if prices are unknown; nothing if it is free. */
function usedText(metrics: RunMetrics): string | undefined {
  const usd = metrics["cost/usd"];
  if (typeof usd === "number") return usd === 0 ? undefined : dollarText(usd);
  const counts = Object.entries(metrics).flatMap(([name, value]) =>
    name.startsWith("tokens/") && typeof value === "number" ? [value] : [],
  );
  if (counts.length === 0) return undefined;
  return `${shortCount(counts.reduce((sum, count) => sum + count, 0))} tokens`;
}

/** A duration for people, such as "3 min". */
export function humanTime(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Standard error if there is one: standard output belongs to the program. */
function defaultScreen(): Screen {
  const { process } = globalThis as { process?: { stderr?: Screen } };
  return process?.stderr ?? { write: (text) => console.log(text.replace(/\n$/, "")) };
}
