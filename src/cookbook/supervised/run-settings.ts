import { DEFAULT_RANK, learningRateAdvice } from "./hyperparameters.js";
import type { TrainSupervisedOptions } from "./options.js";
import { warmupSteps } from "./options.js";
import { saveSettings } from "./save-plan.js";
import type { TrainingData } from "./training-data.js";

const DEFAULT_ADAM = { beta1: 0.9, beta2: 0.95, eps: 1e-8 };
/** Evaluations of a whole run, when nobody says how many. */
const EVALUATIONS = 10;

/** What a run is made with, once every default is decided. */
export type RunSettings = ReturnType<typeof runSettings>;

/** What was found out before the settings could be. */
export interface FoundOut {
  readonly data: TrainingData;
  readonly rendererName: string;
  readonly maxLength: number | undefined;
}

/** Every setting of the run, those that depend on its rows included. */
export function runSettings(options: TrainSupervisedOptions, { data, rendererName, maxLength }: FoundOut) {
  const { model, epochs = 1, seed = 0, best } = options;
  const steps = Math.min(epochs * data.stepsPerEpoch, options.maxSteps ?? Number.POSITIVE_INFINITY);
  const advice = learningRateAdvice(model);
  return {
    model,
    rendererName,
    maxLength,
    epochs,
    seed,
    steps,
    stepsPerEpoch: data.stepsPerEpoch,
    batchSize: data.batchSize,
    learningRate: options.learningRate ?? advice.learningRate,
    learningRateReason: options.learningRate === undefined ? advice.reason : undefined,
    schedule: options.schedule ?? ("linear" as const),
    warmupSteps: warmupSteps(options.warmup ?? 0, steps),
    rank: options.rank ?? DEFAULT_RANK,
    startFrom: options.startFrom,
    trainOn: options.trainOn ?? ("all_assistant_messages" as const),
    reduction: options.reduction ?? ("mean" as const),
    adam: { ...DEFAULT_ADAM, ...options.adam },
    evaluateEvery: options.evaluateEvery ?? Math.ceil(steps / EVALUATIONS),
    save: saveSettings(options.save),
    best: best === true ? {} : best === false ? undefined : best,
    counts: data.counts,
  };
}

/** As it stands in `config.json`, under the names of the Python cookbook where it has the same. */
export function configOf(settings: RunSettings): Readonly<Record<string, unknown>> {
  const { adam, save, best, counts } = settings;
  return {
    model_name: settings.model,
    renderer_name: settings.rendererName,
    load_checkpoint_path: settings.startFrom ?? null,
    learning_rate: settings.learningRate,
    lr_schedule: settings.schedule,
    warmup_steps: settings.warmupSteps,
    num_epochs: settings.epochs,
    steps: settings.steps,
    batch_size: settings.batchSize,
    lora_rank: settings.rank,
    train_on_what: settings.trainOn,
    reduction: settings.reduction,
    max_length: settings.maxLength ?? null,
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
    best: best === undefined ? null : { metric: "test/nll", goal: "lower", patience: null, ...best },
    rows: counts.rows,
    test_rows: counts.testRows,
    tokens: counts.tokens,
    test_tokens: counts.testTokens,
  };
}

/** What is about to be done, for people. */
export function describeRun(
  settings: RunSettings,
  {
    remarks,
    pricePerMillionTokens,
    folder,
  }: { remarks: readonly string[]; pricePerMillionTokens?: number | undefined; folder?: string | undefined },
): string {
  const { counts, steps, stepsPerEpoch, epochs } = settings;
  const number = (value: number) => value.toLocaleString("en-US");
  const trained = Math.round((counts.tokens * steps) / stepsPerEpoch);
  const held = counts.testRows === 0 ? "none held out" : `${number(counts.testRows)} held out`;
  const rate = settings.learningRate.toPrecision(3).replace(/\.?0+(?=e|$)/, "");
  const reason = settings.learningRateReason === undefined ? "" : ` (${settings.learningRateReason})`;
  const lines: [string, string][] = [
    ["model", `${settings.model}, a LoRA adapter of rank ${settings.rank}`],
    ["renderer", `${settings.rendererName}, learning ${settings.trainOn}`],
    ["rows", `${number(counts.rows)} to learn from, ${held}`],
    ["tokens", `${number(counts.tokens)} an epoch, ${number(counts.lossTokens)} of them learnt`],
    [
      "steps",
      `${number(steps)}: ${epochs === 1 ? "1 epoch" : `${epochs} epochs`} of ${number(stepsPerEpoch)}, ${settings.batchSize} rows each`,
    ],
    [
      "rate",
      `${rate}, ${settings.schedule}${settings.warmupSteps === 0 ? "" : ` after ${settings.warmupSteps} steps of warm-up`}${reason}`,
    ],
    ...(pricePerMillionTokens === undefined
      ? []
      : [
          [
            "cost",
            `about ${((trained / 1e6) * pricePerMillionTokens).toFixed(2)} for training on ${number(trained)} tokens`,
          ] as [string, string],
        ]),
    ...(folder === undefined ? [] : [["folder", folder] as [string, string]]),
    ...remarks.map((remark): [string, string] => ["note", remark]),
  ];
  const width = Math.max(...lines.map(([name]) => name.length));
  return lines.map(([name, text]) => `${name.padEnd(width)}  ${text}`).join("\n");
}
