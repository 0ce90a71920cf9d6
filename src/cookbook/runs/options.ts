import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import type { Renderer, RendererTokenizer } from "../../renderers/index.js";
import { type AdamParams, checkKeys, checkObject, wrongValue } from "../../wire/index.js";
import { checkWhole } from "../data/rows.js";
import type { Evaluator } from "../evaluation/index.js";
import type { TrainingLogger } from "./logger.js";
import { SCHEDULES, type Schedule } from "./schedule.js";

/** When weights and optimizer are saved besides at the end. */
export interface SaveOptions {
  /** 20, unless tokens or seconds are given. */
  readonly everySteps?: number | undefined;
  readonly everyTokens?: number | undefined;
  readonly everySeconds?: number | undefined;
  /** Between those, a state to go on from that is deleted when the next one is there. Default: none. */
  readonly rollingSteps?: number | undefined;
  /** How long checkpoints before the final one are kept; `null` for ever. Default: a week. */
  readonly ttlSeconds?: number | null | undefined;
}

/** Which of the weights that were evaluated are the best, and when to look no further. */
export interface BestOptions {
  /** The name of a metric. Default: `test/nll`, or what the kind of training says. */
  readonly metric?: string | undefined;
  /** Default: `lower` for `test/nll`. */
  readonly goal?: "lower" | "higher" | undefined;
  /** The run ends after so many evaluations without a better one. Default: it does not. */
  readonly patience?: number | undefined;
}

/** What every kind of training takes; everything but the first two has a default. */
export interface RunOptions {
  readonly service: ServiceClient;
  /** The base model. */
  readonly model: string;
  /** Where the run is kept, in the Python cookbook's files. The same call with the same folder goes on where it stopped. */
  readonly folder?: string | undefined;
  /** The highest one. Default: `recommendedLearningRate(model)`, or what the kind of training says. */
  readonly learningRate?: number | undefined;
  /** How it goes down. */
  readonly schedule?: Schedule | undefined;
  /** Steps, or a fraction of them all, in which it goes up first. Default: 0. */
  readonly warmup?: number | undefined;
  /** The rank of the adapter. Default: 32. */
  readonly rank?: number | undefined;
  /** Weights to begin with instead of a new adapter: a `tinker://` path of a saved state. */
  readonly startFrom?: string | undefined;
  /** A renderer or its name. Default: the recommended one of the model. */
  readonly renderer?: string | Renderer | undefined;
  /** Default: the one of the model. */
  readonly tokenizer?: RendererTokenizer | undefined;
  /** Besides the learning rate. Default: beta1 0.9, beta2 0.95, eps 1e-8. */
  readonly adam?: Omit<AdamParams, "learningRate"> | undefined;
  /** Decides the order of the data, whatever else is drawn, and the first weights. Default: 0. */
  readonly seed?: number | undefined;
  /** Steps between evaluations, besides before the first and after the last; 0 for none at all. Default: a tenth of the run. */
  readonly evaluateEvery?: number | undefined;
  /** What is measured between steps. */
  readonly evaluators?: readonly Evaluator[] | undefined;
  readonly save?: SaveOptions | undefined;
  /** Keeps the best weights too. Default: no. */
  readonly best?: boolean | BestOptions | undefined;
  /** Default: `[consoleLogger()]`. The folder is written in any case. */
  readonly loggers?: readonly TrainingLogger[] | undefined;
  /** Gives up at once; what is checkpointed stays. */
  readonly signal?: AbortSignal | undefined;
  /** Ends the run after the step under way, with a checkpoint to go on from. */
  readonly pauseSignal?: AbortSignal | undefined;
}

const OPTION_KEYS = [
  ...(["service", "model", "folder", "learningRate", "schedule", "warmup", "rank", "startFrom"] as const),
  ...(["renderer", "tokenizer", "adam", "seed", "evaluateEvery", "evaluators", "save", "best"] as const),
  ...(["loggers", "signal", "pauseSignal"] as const),
] satisfies (keyof RunOptions)[];

const SAVE_KEYS: ReadonlySet<string> = new Set([
  "everySteps",
  "everyTokens",
  "everySeconds",
  "rollingSteps",
  "ttlSeconds",
] satisfies (keyof SaveOptions)[]);

/** The learning rate has an option, and a schedule, of its own. */
const ADAM_KEYS: ReadonlySet<string> = new Set([
  ...(["beta1", "beta2", "eps", "weightDecay", "gradClipNorm"] as const),
] satisfies (keyof NonNullable<RunOptions["adam"]>)[]);

const BEST_KEYS: ReadonlySet<string> = new Set([
  "metric",
  "goal",
  "patience",
] satisfies (keyof BestOptions)[]);

/** Refuses what no run could be made of, before anything is read or sent. `ownKeys` are those of the kind of training. */
export function checkRunOptions(options: RunOptions, caller: string, ownKeys: readonly string[]): void {
  checkObject(options, `the argument of ${caller}`);
  checkKeys(options, new Set([...OPTION_KEYS, ...ownKeys]), "");
  const { service, model, folder, save = {}, best } = options;
  if (typeof (service as Partial<ServiceClient> | undefined)?.clone !== "function")
    throw wrongValue("service", "a ServiceClient", service);
  if (typeof model !== "string" || model === "") throw wrongValue("model", "the name of a model", model);
  if (folder !== undefined && (typeof folder !== "string" || folder === ""))
    throw wrongValue("folder", "the path of a folder", folder);
  for (const field of ["evaluators", "loggers"] as const) {
    const value: unknown = options[field];
    if (value !== undefined && !Array.isArray(value)) throw wrongValue(field, `a list of ${field}`, value);
  }
  checkKeys(options.adam ?? {}, ADAM_KEYS, "adam");
  checkCount(options, "rank", 1);
  checkCount(options, "seed", 0);
  checkCount(options, "evaluateEvery", 0);
  checkPositive(options, "learningRate");
  checkChoice("schedule", options.schedule, SCHEDULES);
  checkKeys(save, SAVE_KEYS, "save");
  for (const field of ["everySteps", "everyTokens", "rollingSteps"] as const)
    checkCount(save, field, 1, "save.");
  checkPositive(save, "everySeconds", "save.");
  if (save.ttlSeconds !== null) checkPositive(save, "ttlSeconds", "save.");
  if (typeof best === "object") {
    checkKeys(best, BEST_KEYS, "best");
    checkCount(best, "patience", 1, "best.");
    checkChoice("best.goal", best.goal, ["lower", "higher"]);
  }
  if (best && options.evaluateEvery === 0) {
    throw new ValidationError("best", "best needs evaluations, and evaluateEvery is 0");
  }
}

/** A whole number of at least `least`, where one is given. */
export function checkCount<K extends string>(
  given: Readonly<Partial<Record<K, number | undefined>>>,
  field: K,
  least: number,
  prefix = "",
): void {
  const value = given[field];
  if (value !== undefined) checkWhole(`${prefix}${field}`, value, least);
}

/** A number above 0, where one is given. */
export function checkPositive<K extends string>(
  given: Readonly<Partial<Record<K, number | null | undefined>>>,
  field: K,
  prefix = "",
): void {
  const value = given[field];
  if (value !== undefined && !(typeof value === "number" && value > 0 && Number.isFinite(value)))
    throw wrongValue(`${prefix}${field}`, "a number above 0", value);
}

/** One of these, where one is given. */
export function checkChoice(field: string, value: string | undefined, choices: readonly string[]): void {
  if (value !== undefined && !choices.includes(value))
    throw wrongValue(field, `one of ${choices.join(", ")}`, value);
}

/** The steps that the learning rate climbs in. */
export function warmupSteps(warmup: number, steps: number): number {
  const count = warmup > 0 && warmup < 1 ? Math.round(warmup * steps) : warmup;
  if (!Number.isInteger(count) || count < 0 || count >= steps) {
    const expected = `a fraction below 1, or a number of steps below the ${steps} of the run`;
    throw wrongValue("warmup", expected, warmup);
  }
  return count;
}
