import type { MetricValue, RunMetrics } from "../../training/index.js";
import type { TrainingLogger } from "./logger.js";

/** Where lines go: a terminal, a file, a test. */
export interface Screen {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

/** Shows a run: on a terminal one line that changes, elsewhere a line for about every twentieth part of it. */
export function consoleLogger({ screen = defaultScreen() }: { screen?: Screen } = {}): TrainingLogger {
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
      // The first step waits for the model to be made, which says nothing about those after it.
      began ??= { atMs: now, step };
      const done = step - began.step;
      const secondsLeft = done === 0 ? undefined : ((now - began.atMs) / 1000 / done) * (steps - step - 1);
      const line = progressLine(metrics, step, steps, secondsLeft);
      const isMeasured = Object.keys(metrics).some(isEvaluation);
      const share = steps === 0 ? 1 : (step + 1) / steps;
      if (isMeasured || !isLive) {
        if (!isMeasured && share < linesDue) return;
        linesDue = Math.floor(share * LINES) / LINES + 1 / LINES;
        clear();
        screen.write(`${line}\n`);
      } else {
        // A line that wraps cannot be taken back.
        screen.write(`\r\x1b[K${line.slice(0, (screen.columns || 80) - 1)}`);
        isShown = true;
      }
    },
    close: clear,
  };
}

/** Of a whole run, where lines cannot be taken back. */
const LINES = 20;

/** What a person wants to see of a step, for each kind of training. */
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

/** Of what environments measure, the reward is what a person looks for. */
function isDetail(metric: string): boolean {
  return metric === "test/bpb" || (metric.includes("/env/") && !metric.endsWith("/env/all/reward/total"));
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
    // A model that only learns from its teacher is rewarded by nobody.
    const isUnrewarded = label === "reward" && metrics["teacher_kl"] !== undefined && metrics[name] === 0;
    if (!isUnrewarded) add(label, metrics[name]);
  }
  for (const [name, value] of Object.entries(metrics))
    if (isEvaluation(name) && !isDetail(name)) add(name, value);
  if (!isAfterLast && secondsLeft !== undefined && secondsLeft > 0)
    parts.push(`${humanTime(secondsLeft)} left`);
  return parts.join("  ");
}

/** A length of time as people say it. */
export function humanTime(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Standard error where there is one: standard output belongs to the program. */
function defaultScreen(): Screen {
  const { process } = globalThis as { process?: { stderr?: Screen } };
  return process?.stderr ?? { write: (text) => console.log(text.replace(/\n$/, "")) };
}
