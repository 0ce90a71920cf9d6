import { ValidationError } from "../../errors.js";
import { keptOptions } from "../../wire/index.js";
import { DEFAULT_RANK, type LearningRateAdvice, learningRateAdvice } from "./hyperparameters.js";
import { type BestOptions, type FilledRunOptions, RUN_OPTIONS, warmupSteps } from "./options.js";
import { saveSettings } from "./save-plan.js";
import { type Schedule, scheduleMultiplier } from "./schedule.js";

/** Default number of evaluations of a run. */
const EVALUATIONS = 10;

/** Defaults of a kind of training. */
export interface RunDefaults {
  readonly steps: number;
  readonly rendererName: string;
  /** Default: there are no epochs. */
  readonly stepsPerEpoch?: number | undefined;
  /** Default: by the model. */
  readonly learningRate?: LearningRateAdvice | undefined;
  /** Metric of the best weights. Default: the lowest `test/nll`. */
  readonly best?: Required<Pick<BestOptions, "metric" | "goal">> | undefined;
}

/** Settings of every run, with all defaults filled in. */
export type RunSettings = ReturnType<typeof runSettings>;

/** Every setting that runs of all kinds have. */
export function runSettings(
  options: FilledRunOptions & { readonly schedule: Schedule },
  defaults: RunDefaults,
) {
  const { model, seed, best } = options;
  const { steps, rendererName, stepsPerEpoch = Number.POSITIVE_INFINITY } = defaults;
  checkLayers(options);
  const advice = defaults.learningRate ?? learningRateAdvice(model);
  const { metric = "test/nll", goal = "lower" } = { ...defaults.best, ...(best === true ? {} : best) };
  return {
    model,
    rendererName,
    seed,
    steps,
    stepsPerEpoch,
    learningRate: options.learningRate ?? advice.learningRate,
    recommendedRate: advice.learningRate,
    learningRateReason: options.learningRate === undefined ? advice.reason : undefined,
    schedule: options.schedule,
    warmupSteps: warmupSteps(options.warmup, steps),
    rank: options.rank ?? DEFAULT_RANK,
    trainAttn: options.trainAttn ?? true,
    trainMlp: options.trainMlp ?? true,
    trainUnembed: options.trainUnembed ?? true,
    startFrom: options.startFrom,
    adam: options.adam,
    evaluateEvery: options.evaluateEvery ?? Math.ceil(steps / EVALUATIONS),
    save: saveSettings(options.save),
    best: best ? { metric, goal, patience: best === true ? undefined : best.patience } : undefined,
  };
}

function checkLayers({ trainAttn = true, trainMlp = true, trainUnembed = true }: FilledRunOptions): void {
  if (trainAttn || trainMlp || trainUnembed) return;
  throw new ValidationError(
    "trainAttn",
    "trainAttn, trainMlp and trainUnembed are all off, so nothing would be trained: leave one of them on",
  );
}

/** Optimizer parameters of a step. */
export function adamAt(settings: RunSettings, step: number) {
  const { learningRate, schedule, steps, warmupSteps: warmup, adam } = settings;
  return { learningRate: learningRate * scheduleMultiplier(schedule, step, steps, warmup), ...adam };
}

/** As it stands in `config.json`, under the names of the Python cookbook where it has the same. */
export function configOf(settings: RunSettings): Readonly<Record<string, unknown>> {
  const { best } = settings;
  return {
    ...keptOptions(RUN_OPTIONS, settings),
    renderer_name: settings.rendererName,
    warmup_steps: settings.warmupSteps,
    steps: settings.steps,
    best: best === undefined ? null : { ...best, patience: best.patience ?? null },
  };
}

/** A line of a description: what it is about, and what is said. */
export type DescribedLine = readonly [name: string, text: string];

/** Describes the run before it starts. */
export function describeSettings(lines: readonly DescribedLine[]): string {
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
export function describeModel({ model, rank, ...trained }: RunSettings): DescribedLine {
  const left = [
    ...(trained.trainAttn ? [] : ["attention"]),
    ...(trained.trainMlp ? [] : ["feed-forward layers"]),
    ...(trained.trainUnembed ? [] : ["output head"]),
  ];
  const without = left.length === 0 ? "" : `, without ${left.join(" and ")}`;
  return ["model", `${model}, a LoRA adapter of rank ${rank}${without}`];
}
