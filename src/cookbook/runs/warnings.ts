import type { RunMetrics } from "../../training/index.js";

/** Kind of problem that a warning names. */
export type WarningKind =
  | "loss_rising"
  | "not_a_number"
  | "gradient_norm"
  | "kl"
  | "entropy"
  | "equal_rewards"
  | "answers_cut"
  | "nothing_to_learn"
  | "learning_rate";

/** Something that looks wrong in a run, and what to do about it. */
export interface RunWarning {
  readonly step: number;
  readonly kind: WarningKind;
  /** Metric or setting that shows it. */
  readonly metric: string;
  readonly message: string;
  readonly proposal: string;
}

/** Facts about a run that its warnings depend on. */
export interface WatchedRun {
  readonly steps: number;
  readonly learningRate: number;
  readonly recommendedRate: number;
  /** Whether rewards decide what is learned; a run that is only taught by a teacher has none that count. */
  readonly hasRewards: boolean;
}

type Finding = Omit<RunWarning, "step" | "kind">;
/** Looks at the values of each metric so far, the newest last. */
type Rule = (
  valuesOf: (metric: string) => readonly number[],
  run: WatchedRun,
  step: number,
) => Finding | undefined;

/** Values of a metric that are remembered. */
const REMEMBERED = 500;
/** A learning rate is far from the recommended one if it is so many times larger, or smaller. */
const FAR_ABOVE = 10;
const FAR_BELOW = 30;
/** Losses before a rise is believed. */
const LEAST_LOSSES = 6;
const LOSSES = ["train_mean_nll", "dpo_loss"] as const;
/** Names of gradient norms: of the built-in backend and of others. */
const GRADIENT_NORM = /grad\w*_(?:norm|l2)/;
const LEAST_NORMS = 6;
const NORM_JUMP = 50;
/** Half the mean square of the difference of logprobs: next to 0 unless the weights differ. */
const LARGEST_KL = 0.1;
const COLLAPSED_ENTROPY = 0.02;
const LARGEST_SHARE_CUT = 0.5;
/** Share of groups with different rewards. */
const FEW_MIXED = 0.1;
/** Steps in a row that show the same, before something is said of noisy metrics. */
const STEPS_IN_A_ROW = 3;

const shown = (value: number) => String(Number(value.toPrecision(3)));
const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1]!;
/** The newest values, if there are that many and all of them pass. */
const lastAll = (values: readonly number[], holds: (value: number) => boolean, count = STEPS_IN_A_ROW) =>
  values.length >= count && values.slice(-count).every(holds);

const RULES: Readonly<Record<Exclude<WarningKind, "not_a_number" | "learning_rate">, Rule>> = {
  loss_rising: (valuesOf, { learningRate }) => {
    for (const metric of LOSSES) {
      const losses = valuesOf(metric);
      if (losses.length < LEAST_LOSSES) continue;
      const medians = losses.slice(2).map((_, index) => median(losses.slice(index, index + 3)));
      const [now, best] = [medians.at(-1)!, Math.min(...medians)];
      if (now <= 1.5 * best + 0.5 || now <= medians[0]!) continue;
      return {
        metric,
        message: `the loss rises: ${shown(now)} now, ${shown(best)} at its best`,
        proposal: `a learning rate below ${shown(learningRate)}, a warm-up, or adam: { gradClipNorm: 1 }`,
      };
    }
    return undefined;
  },
  gradient_norm: (valuesOf) => {
    const norms = valuesOf("gradient_norm");
    const usual = median(norms.slice(0, -1));
    const norm = norms.at(-1)!;
    if (norms.length < LEAST_NORMS || usual <= 0 || norm <= NORM_JUMP * usual) return undefined;
    return {
      metric: "gradient_norm",
      message: `the norm of the gradients is ${shown(norm)}, ${shown(norm / usual)} times what it usually is`,
      proposal:
        "adam: { gradClipNorm: 1 } bounds a step; look for rows or rewards that are far from the others",
    };
  },
  kl: (valuesOf) => {
    const metric = "optim/kl_sample_train_v2";
    const values = valuesOf(metric);
    if (!lastAll(values, (value) => value > LARGEST_KL, 2)) return undefined;
    return {
      metric,
      message: `the trainer is far from the sampler: half the mean square of their logprobs is ${shown(values.at(-1)!)}`,
      proposal:
        "sample at temperature 1, with fewer steps off policy (maxStepsOffPolicy) or a lower learning rate; " +
        "a server whose sampler differs from its trainer shows it from the first step",
    };
  },
  entropy: (valuesOf, { hasRewards }) => {
    const metric = "optim/entropy";
    const isCollapsed = lastAll(valuesOf(metric), (value) => value < COLLAPSED_ENTROPY);
    // A model that does what is rewarded need not be unsure.
    const isGood = (valuesOf("env/all/by_group/frac_all_good").at(-1) ?? 0) >= 0.5;
    if (!hasRewards || !isCollapsed || isGood) return undefined;
    return {
      metric,
      message: `the entropy has collapsed to ${shown(valuesOf(metric).at(-1)!)} nats per token: all answers are alike`,
      proposal: "a lower learning rate, fewer substeps, loss dapo, or temperature 1",
    };
  },
  equal_rewards: (valuesOf, { hasRewards, steps }, step) => {
    const metric = "env/all/by_group/frac_mixed";
    const values = valuesOf(metric);
    if (!hasRewards || !lastAll(values, (value) => value < FEW_MIXED)) return undefined;
    const isGood = (valuesOf("env/all/by_group/frac_all_good").at(-1) ?? 0) > 0.5;
    // A run that can do its task near its end has done what it should.
    if (isGood && step >= steps / 2) return undefined;
    return {
      metric,
      message: `in ${STEPS_IN_A_ROW} steps the episodes of almost every group were rewarded alike, which teaches nothing`,
      proposal: isGood
        ? "harder problems, or a reward with more than two values; if this is good enough, the run is done"
        : "easier problems, a reward with more than two values, a larger groupSize or a higher temperature",
    };
  },
  answers_cut: (valuesOf) => {
    const metric = "sampling/frac_cut";
    const values = valuesOf(metric);
    if (!lastAll(values, (value) => value > LARGEST_SHARE_CUT, 2)) return undefined;
    return {
      metric,
      message: `${Math.round(100 * values.at(-1)!)}% of the answers were cut off at the limit of their tokens`,
      proposal: "a larger maxTokens, or a reward for short answers",
    };
  },
  nothing_to_learn: (valuesOf, { steps }, step) => {
    const tokens = valuesOf("num_loss_tokens");
    if (tokens.at(-1) === 0)
      return {
        metric: "num_loss_tokens",
        message: "no token of this step is trained",
        proposal: "trainOn decides which messages are trained; maxLength may cut the answers",
      };
    for (const metric of LOSSES) {
      const losses = valuesOf(metric);
      if (!lastAll(losses, (loss) => loss < 1e-3) || step >= steps / 2) continue;
      return {
        metric,
        message: `the loss is ${shown(losses.at(-1)!)}: the model can do all of this already`,
        proposal:
          "fewer epochs, or other rows; repeated rows may be the reason (tinkerts data check finds them)",
      };
    }
    const norms = valuesOf("gradient_norm");
    if (!lastAll(norms, (norm) => norm === 0)) return undefined;
    return {
      metric: "gradient_norm",
      message: `the gradients of ${STEPS_IN_A_ROW} steps were 0: nothing was learned`,
      proposal: "look at the rewards and weights of the data",
    };
  },
};

/** Begins the names of the metrics that count warnings. */
const COUNT_PREFIX = "warnings/";

/** The metric that counts warnings of a kind. */
export function warningMetric(kind: WarningKind): string {
  return `${COUNT_PREFIX}${kind}`;
}

/**
 * Watches the lines of a run's metrics. Each kind of warning comes once. What it says depends on these lines alone, so a
 * run that is interrupted warns of the same things at the same steps.
 */
export class RunWatch {
  readonly #run: WatchedRun;
  readonly #values = new Map<string, number[]>();
  readonly #given = new Set<WarningKind>();

  constructor(run: WatchedRun) {
    this.#run = run;
  }

  /** Takes a line that the run wrote before it was interrupted, with the warnings that are counted in it. */
  recall(line: RunMetrics): void {
    this.#rememberAll(line);
    for (const name of Object.keys(line))
      if (name.startsWith(COUNT_PREFIX)) this.#given.add(name.slice(COUNT_PREFIX.length) as WarningKind);
  }

  /** Warnings before the first step. */
  begin(): readonly RunWarning[] {
    const { learningRate, recommendedRate } = this.#run;
    const times = learningRate / recommendedRate;
    if (times <= FAR_ABOVE && times >= 1 / FAR_BELOW) return [];
    const far = times > 1 ? `${shown(times)} times` : `a ${shown(1 / times)}th of`;
    return this.#once(0, "learning_rate", {
      metric: "learning_rate",
      message: `the learning rate ${shown(learningRate)} is ${far} the recommended one`,
      proposal: `${shown(recommendedRate)}, or two or three times as much`,
    });
  }

  /** Warnings about the metrics of a step. */
  look(metrics: RunMetrics, step: number): readonly RunWarning[] {
    const warnings = Object.entries(metrics).flatMap(([name, value]) =>
      typeof value === "number" && !Number.isFinite(value) ? this.notANumber(step, name, value) : [],
    );
    this.#rememberAll(metrics);
    const valuesOf = (metric: string) => this.#values.get(metric) ?? [];
    for (const [kind, rule] of Object.entries(RULES) as [WarningKind, Rule][]) {
      const finding = rule(valuesOf, this.#run, step);
      if (finding !== undefined) warnings.push(...this.#once(step, kind, finding));
    }
    return warnings;
  }

  /** A warning that something else has found. */
  give(step: number, { kind, ...finding }: Omit<RunWarning, "step">): readonly RunWarning[] {
    return this.#once(step, kind, finding);
  }

  /** A warning that a metric is not a number. */
  notANumber(step: number, metric: string, value: number): readonly RunWarning[] {
    return this.#once(step, "not_a_number", {
      metric,
      message: `${metric} is ${value}`,
      proposal: `a learning rate below ${shown(this.#run.learningRate)}, or adam: { gradClipNorm: 1 }`,
    });
  }

  #rememberAll(metrics: RunMetrics): void {
    for (const [name, value] of Object.entries(metrics))
      if (typeof value === "number" && Number.isFinite(value))
        this.#remember(GRADIENT_NORM.test(name) ? "gradient_norm" : name, value);
  }

  #remember(metric: string, value: number): void {
    const values = this.#values.get(metric) ?? [];
    values.push(value);
    if (values.length > REMEMBERED) values.shift();
    this.#values.set(metric, values);
  }

  #once(step: number, kind: WarningKind, finding: Finding): readonly RunWarning[] {
    if (this.#given.has(kind)) return [];
    this.#given.add(kind);
    return [{ step, kind, ...finding }];
  }
}

/** Kinds of warnings that say that the run has diverged: more steps do not help. */
const DIVERGENCE: ReadonlySet<WarningKind> = new Set(["loss_rising", "not_a_number"]);

export function isDivergence({ kind }: RunWarning): boolean {
  return DIVERGENCE.has(kind);
}

/** A warning as a line for people. */
export function warningText({ step, message, proposal }: RunWarning): string {
  return `Warning at step ${step + 1}: ${message}. Try ${proposal}`;
}
