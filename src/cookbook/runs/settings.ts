import { DEFAULT_RANK, type LearningRateAdvice, learningRateAdvice } from "./hyperparameters.js";
import { type BestOptions, type RunOptions, warmupSteps } from "./options.js";
import { saveSettings } from "./save-plan.js";
import { type Schedule, scheduleMultiplier } from "./schedule.js";

const DEFAULT_ADAM = { beta1: 0.9, beta2: 0.95, eps: 1e-8 };
/** Evaluations of a whole run, when nobody says how many. */
const EVALUATIONS = 10;

/** What the kind of training decides, where the user has not. */
export interface RunDefaults {
  readonly steps: number;
  readonly rendererName: string;
  readonly schedule: Schedule;
  /** Default: all steps are one epoch. */
  readonly stepsPerEpoch?: number | undefined;
  /** Default: by the model. */
  readonly learningRate?: LearningRateAdvice | undefined;
  readonly rank?: number | undefined;
  /** What is best. Default: the lowest `test/nll`. */
  readonly best?: Required<Pick<BestOptions, "metric" | "goal">> | undefined;
}

/** What every run is made with, once all defaults are decided. */
export type RunSettings = ReturnType<typeof runSettings>;

/** Every setting that runs of all kinds have. */
export function runSettings(options: RunOptions, defaults: RunDefaults) {
  const { model, seed = 0, best } = options;
  const { steps, rendererName, stepsPerEpoch = steps } = defaults;
  const advice = defaults.learningRate ?? learningRateAdvice(model);
  const { metric = "test/nll", goal = "lower" } = { ...defaults.best, ...(best === true ? {} : best) };
  return {
    model,
    rendererName,
    seed,
    steps,
    stepsPerEpoch,
    learningRate: options.learningRate ?? advice.learningRate,
    learningRateReason: options.learningRate === undefined ? advice.reason : undefined,
    schedule: options.schedule ?? defaults.schedule,
    warmupSteps: warmupSteps(options.warmup ?? 0, steps),
    rank: options.rank ?? defaults.rank ?? DEFAULT_RANK,
    startFrom: options.startFrom,
    adam: { ...DEFAULT_ADAM, ...options.adam },
    evaluateEvery: options.evaluateEvery ?? Math.ceil(steps / EVALUATIONS),
    save: saveSettings(options.save),
    best: best ? { metric, goal, patience: best === true ? undefined : best.patience } : undefined,
  };
}

/** What the optimizer does at a step. */
export function adamAt(settings: RunSettings, step: number) {
  const { learningRate, schedule, steps, warmupSteps: warmup, adam } = settings;
  return { learningRate: learningRate * scheduleMultiplier(schedule, step, steps, warmup), ...adam };
}

/** As it stands in `config.json`, under the names of the Python cookbook where it has the same. */
export function configOf(settings: RunSettings): Readonly<Record<string, unknown>> {
  const { adam, save, best } = settings;
  return {
    model_name: settings.model,
    renderer_name: settings.rendererName,
    load_checkpoint_path: settings.startFrom ?? null,
    learning_rate: settings.learningRate,
    lr_schedule: settings.schedule,
    warmup_steps: settings.warmupSteps,
    steps: settings.steps,
    lora_rank: settings.rank,
    seed: settings.seed,
    adam_beta1: adam.beta1,
    adam_beta2: adam.beta2,
    adam_eps: adam.eps,
    weight_decay: adam.weightDecay ?? 0,
    grad_clip_norm: adam.gradClipNorm ?? 0,
    eval_every: settings.evaluateEvery,
    save_every: save.everySteps ?? 0,
    save_every_tokens: save.everyTokens ?? 0,
    save_every_seconds: save.everySeconds ?? 0,
    rolling_save_every: save.rollingSteps ?? 0,
    ttl_seconds: save.ttlSeconds ?? null,
    best: best === undefined ? null : { ...best, patience: best.patience ?? null },
  };
}

/** A line of a description: what it is about, and what is said. */
export type DescribedLine = readonly [name: string, text: string];

/** What is about to be done, for people. */
export function describe(lines: readonly DescribedLine[]): string {
  const width = Math.max(...lines.map(([name]) => name.length));
  return lines.map(([name, text]) => `${name.padEnd(width)}  ${text}`).join("\n");
}

/** The learning rate as a line of the description. */
export function describeRate(settings: RunSettings): DescribedLine {
  const rate = settings.learningRate.toPrecision(3).replace(/\.?0+(?=e|$)/, "");
  const warmup = settings.warmupSteps === 0 ? "" : ` after ${settings.warmupSteps} steps of warm-up`;
  const reason = settings.learningRateReason === undefined ? "" : ` (${settings.learningRateReason})`;
  return ["rate", `${rate}, ${settings.schedule}${warmup}${reason}`];
}

/** The model as a line of the description. */
export function describeModel({ model, rank }: RunSettings): DescribedLine {
  return ["model", `${model}, a LoRA adapter of rank ${rank}`];
}
