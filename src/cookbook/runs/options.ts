import type { ServiceClient } from "../../clients/index.js";
import type { Renderer, RendererTokenizer } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import { type AdamParams, isRecord } from "../../wire/index.js";
import { BUDGET_OPTIONS, type RunBudget } from "../costs/budget.js";
import { type PriceOverrides, pricesField } from "../costs/prices.js";
import type { Evaluator } from "../evaluation/index.js";
import { DEFAULT_RANK } from "./hyperparameters.js";
import type { TrainingLogger } from "./logger.js";
import { SCHEDULES, type Schedule } from "./schedule.js";

/** When to save weights and optimizer, besides at the end. */
export interface CheckpointOptions {
  /** Steps between checkpoints. Default: 20, unless tokens or seconds are given. */
  readonly everySteps?: number | undefined;
  readonly everyTokens?: number | undefined;
  readonly everySeconds?: number | undefined;
  /** Steps between rolling checkpoints, each deleted once the next is saved. Default: none. */
  readonly rollingSteps?: number | undefined;
  /** How long checkpoints before the final one are kept; `null` keeps them for ever. Default: a week. */
  readonly ttlSeconds?: number | null | undefined;
}

/** How to choose the best of the evaluated weights, and when to stop early. */
export interface BestOptions {
  /**
   * Metric that decides which weights are best. Default: `test/nll`, unless the kind of training has another default.
   */
  readonly metric?: string | undefined;
  /** Whether lower or higher values are better. Default: `lower` for `test/nll`. */
  readonly goal?: "lower" | "higher" | undefined;
  /** Ends the run after this many evaluations without improvement. Default: never. */
  readonly patience?: number | undefined;
}

/** Options of every kind of training; all but `service` and `model` have a default. */
export interface RunOptions {
  readonly service: ServiceClient;
  /** Name of the base model. */
  readonly model: string;
  /**
   * Folder of the run, with the Python cookbook's files. The same call with the same folder continues where it stopped;
   * with more epochs or steps it trains those too.
   */
  readonly folder?: string | undefined;
  /**
   * Peak learning rate; `schedule` says how it decays. Default: `recommendedLearningRate(model)`, unless the kind of
   * training has another default.
   */
  readonly learningRate?: number | undefined;
  /** How the learning rate decays over the run. */
  readonly schedule?: Schedule | undefined;
  /** Steps in which the learning rate rises to its peak, or a fraction of all steps. Default: 0. */
  readonly warmup?: number | undefined;
  /** Rank of the LoRA adapter. Default: 32. */
  readonly rank?: number | undefined;
  /** Whether the adapter has weights for the attention. Default: true. */
  readonly trainAttn?: boolean | undefined;
  /** Whether the adapter has weights for the feed-forward layers. Default: true. */
  readonly trainMlp?: boolean | undefined;
  /** Whether the adapter has weights for the output head; vLLM loads only adapters without them. Default: true. */
  readonly trainUnembed?: boolean | undefined;
  /**
   * Weights to start from instead of a new adapter: a `tinker://` path of a saved state or, with the built-in backend in
   * this process, the folder of a PEFT adapter.
   */
  readonly startFrom?: string | undefined;
  /** Renderer, or its name. Default: the recommended one for the model. */
  readonly renderer?: string | Renderer | undefined;
  /** Tokenizer to train with. Default: the model's own. */
  readonly tokenizer?: RendererTokenizer | undefined;
  /** Adam parameters besides the learning rate. Default: beta1 0.9, beta2 0.95, eps 1e-8. */
  readonly adam?: Omit<AdamParams, "learningRate"> | undefined;
  /** Seed of the data order, of sampling and of the initial weights. Default: 0. */
  readonly seed?: number | undefined;
  /**
   * Steps between evaluations, in addition to those before the first and after the last step; 0: no evaluations.
   * Default: a tenth of the run.
   */
  readonly evaluateEvery?: number | undefined;
  /** Evaluators that run between steps. */
  readonly evaluators?: readonly Evaluator[] | undefined;
  readonly save?: CheckpointOptions | undefined;
  /** Also keeps the best weights. Default: no. */
  readonly best?: boolean | BestOptions | undefined;
  /**
   * Your own prices, or a JSON file of them: `{ asOf, models: { NAME: { prefill, cachedPrefill, sample, train } } }` in
   * dollars per million tokens, or a copy of the hosted service's `models.json`. Default: the hosted service's prices.
   */
  readonly prices?: string | PriceOverrides | undefined;
  /**
   * The most that the run may use. Before a step that would pass it, the run stops with a checkpoint; the same call
   * with a larger budget continues.
   */
  readonly budget?: RunBudget | undefined;
  /** File for a timeline of the run, which ui.perfetto.dev shows. Default: none. */
  readonly trace?: string | undefined;
  /** Ends the run early, with a checkpoint, when its loss rises or is not a number. Default: the run only warns. */
  readonly stopOn?: "divergence" | undefined;
  /** Loggers of metrics besides the run's folder. Default: `[consoleLogger()]`. */
  readonly loggers?: readonly TrainingLogger[] | undefined;
  /** Aborts the run at once; checkpoints are kept. */
  readonly signal?: AbortSignal | undefined;
  /** Ends the run after the current step, with a checkpoint to resume from. */
  readonly pauseSignal?: AbortSignal | undefined;
}

const SAVE_OPTIONS = {
  everySteps: f.option(f.optional(f.positiveInteger), "steps between checkpoints", {
    otherwise: "20",
    flag: "save-every",
    config: "save_every",
    unset: 0,
  }),
  everyTokens: f.option(f.optional(f.positiveInteger), "tokens between checkpoints", {
    config: "save_every_tokens",
    unset: 0,
  }),
  everySeconds: f.option(f.optional(f.positive), "seconds between checkpoints", {
    config: "save_every_seconds",
    unset: 0,
  }),
  rollingSteps: f.option(f.optional(f.positiveInteger), "steps between states that replace one another", {
    config: "rolling_save_every",
    unset: 0,
  }),
  ttlSeconds: f.option(
    f.optional(f.nullable(f.positive)),
    "seconds for which checkpoints before the final one are kept; null: for ever",
    { otherwise: "a week", config: "ttl_seconds" },
  ),
} satisfies f.OptionsOf<CheckpointOptions>;

const ADAM_OPTIONS = {
  beta1: f.option(f.withDefault(f.fraction, 0.9), "decay of the first moment", { config: "adam_beta1" }),
  beta2: f.option(f.withDefault(f.fraction, 0.95), "decay of the second moment", { config: "adam_beta2" }),
  eps: f.option(f.withDefault(f.nonNegative, 1e-8), "added to the root of the second moment", {
    config: "adam_eps",
  }),
  weightDecay: f.option(f.optional(f.nonNegative), "weight decay", { config: "weight_decay", unset: 0 }),
  gradClipNorm: f.option(f.optional(f.nonNegative), "largest norm of the gradients; 0: no limit", {
    config: "grad_clip_norm",
    unset: 0,
  }),
} satisfies f.OptionsOf<NonNullable<RunOptions["adam"]>>;

const BEST_OPTIONS = {
  metric: f.option(f.optional(f.text), "metric that decides which weights are best", {
    otherwise: "test/nll",
  }),
  goal: f.option(f.optional(f.oneOf("lower", "higher")), "whether lower or higher is better", {
    otherwise: "lower for test/nll",
  }),
  patience: f.option(f.optional(f.positiveInteger), "stop after this many evaluations without a better one", {
    flag: true,
  }),
} satisfies f.OptionsOf<BestOptions>;

/** The option table for the shape of the adapter. Weights to start from have their own shape. */
export const LORA_OPTIONS = {
  rank: f.option(f.optional(f.positiveInteger), "rank of the LoRA adapter", {
    otherwise: String(DEFAULT_RANK),
    flag: true,
    config: "lora_rank",
  }),
  trainAttn: f.option(f.optional(f.boolean), "train an adapter for the attention", {
    otherwise: "true",
    flag: "no-train-attn",
    config: "train_attn",
  }),
  trainMlp: f.option(f.optional(f.boolean), "train an adapter for the feed-forward layers", {
    otherwise: "true",
    flag: "no-train-mlp",
    config: "train_mlp",
  }),
  trainUnembed: f.option(f.optional(f.boolean), "train an adapter for the output head", {
    otherwise: "true",
    flag: "no-train-unembed",
    config: "train_unembed",
  }),
} satisfies f.OptionsOf<Pick<RunOptions, "rank" | "trainAttn" | "trainMlp" | "trainUnembed">>;

/** The option table of every kind of training. */
export const RUN_OPTIONS = {
  service: f.option(f.having<ServiceClient>("a ServiceClient", "clone"), "client of the server that trains"),
  model: f.option(f.text, "base model", { config: "model_name" }),
  folder: f.option(f.optional(f.text), "where the run is kept", {
    flag: true,
    value: "folder",
    otherwise: "runs/FILE-MODEL",
  }),
  learningRate: f.option(f.optional(f.positive), "peak learning rate", {
    otherwise: "recommended for the model",
    flag: true,
    config: "learning_rate",
  }),
  schedule: f.option(f.optional(f.oneOf(...SCHEDULES)), "learning-rate decay", {
    flag: true,
    config: "lr_schedule",
  }),
  warmup: f.option(
    f.withDefault(f.nonNegative, 0),
    "steps, or a fraction of all steps, over which the learning rate rises to its peak",
    { flag: true },
  ),
  ...LORA_OPTIONS,
  startFrom: f.option(
    f.optional(f.text),
    "start from saved weights, tinker://RUN/weights/NAME, or the folder of a PEFT adapter",
    {
      flag: true,
      config: "load_checkpoint_path",
    },
  ),
  renderer: f.option(
    f.optional(f.eitherOf(isRecord, f.opaque as f.Field<Renderer>, f.text)),
    "chat format of the conversations",
    { otherwise: "recommended for the model", flag: true },
  ),
  tokenizer: f.option(f.optional(f.having<RendererTokenizer>("a tokenizer", "encode")), "tokenizer", {
    otherwise: "that of the model",
  }),
  adam: f.option(f.optionGroup(ADAM_OPTIONS), "settings of the Adam optimizer"),
  seed: f.option(
    f.withDefault(f.nonNegativeInteger, 0),
    "seed of the data order, of sampling and of the first weights",
    { flag: true, config: "seed" },
  ),
  evaluateEvery: f.option(f.optional(f.nonNegativeInteger), "steps between evaluations; 0: never", {
    otherwise: "a tenth of the run",
    flag: true,
    config: "eval_every",
  }),
  evaluators: f.option(
    f.withDefault(f.list(f.opaque as f.Field<Evaluator>), []),
    "evaluations that are run between steps",
  ),
  save: f.option(f.optionGroup(SAVE_OPTIONS), "when checkpoints are saved besides at the end"),
  best: f.option(
    f.optional(f.eitherOf(isRecord, f.message(BEST_OPTIONS), f.boolean)),
    "also keep the weights that evaluate best",
    { flag: true },
  ),
  prices: f.option(f.optional(pricesField), "JSON file of prices in dollars per million tokens", {
    otherwise: "those of the hosted service",
    flag: true,
    value: "file",
  }),
  trace: f.option(f.optional(f.text), "write a timeline of the run for ui.perfetto.dev", {
    flag: true,
    value: "file",
  }),
  stopOn: f.option(f.optional(f.oneOf("divergence")), "end the run when its loss rises or is not a number", {
    flag: true,
  }),
  budget: f.option(f.optional(f.message(BUDGET_OPTIONS)), "the most that the run may use"),
  loggers: f.option(f.optional(f.list(f.opaque as f.Field<TrainingLogger>)), "where metrics go", {
    otherwise: "the console",
  }),
  signal: f.option(f.optional(f.abortSignal), "ends the run at once"),
  pauseSignal: f.option(f.optional(f.abortSignal), "ends the run after the current step, with a checkpoint"),
} satisfies f.OptionsOf<RunOptions>;

/** The checked options of every kind of training, with defaults filled in. */
export type FilledRunOptions = f.FilledMessage<typeof RUN_OPTIONS>;

/** A rule about several options of every kind of training. */
export function checkBest({ best, evaluateEvery }: Pick<RunOptions, "best" | "evaluateEvery">): void {
  if (best && evaluateEvery === 0) throw f.wrongField("best", "needs evaluations, but evaluateEvery is 0");
}

/** Number of steps in which the learning rate rises. */
export function warmupSteps(warmup: number, steps: number): number {
  const count = warmup > 0 && warmup < 1 ? Math.round(warmup * steps) : warmup;
  if (!Number.isInteger(count) || count < 0 || count >= steps) {
    const expected = `a fraction below 1, or a number of steps below the ${steps} of the run`;
    throw f.wrongValue("warmup", expected, warmup);
  }
  return count;
}
