import { keptOptions } from "../../wire/index.js";
import type { RolloutSettings } from "../rollouts/index.js";
import { adviceOf, type TriedRates } from "../runs/hyperparameters.js";
import {
  configOf,
  type DescribedLine,
  describeModel,
  describeRate,
  describeSettings,
  runSettings,
} from "../runs/settings.js";
import {
  DEFAULT_GROUP_SIZE,
  type FilledReinforcementOptions,
  lossOf,
  REINFORCEMENT_OPTIONS,
} from "./options.js";

const DEFAULT_MINIBATCHES = 4;
const DEFAULT_STEPS_OFF_POLICY = 1;

/** Default metric of the best weights: the highest reward of `environmentEvaluator`. */
const BEST = { metric: "test/env/all/reward/total", goal: "higher" } as const;

/** Learning rates found by experiment, for models outside the formula. */
const TRIED_RATES: TriedRates = { "tinkerts/nano": 1e-3 };
/** Rewards are noisy: the learning rates of supervised training are too high for them. */
const USUAL_RATE = { learningRate: 4e-5, reason: "usual for training by reward" };

/** Settings of a reinforcement run, with every default decided. */
export type ReinforcementRunSettings = ReturnType<typeof reinforcementSettings>;

/** All settings of the run. */
export function reinforcementSettings(
  options: FilledReinforcementOptions,
  { steps, rendererName }: { readonly steps: number; readonly rendererName: string },
) {
  const { mode, kl, loss } = options;
  return {
    ...runSettings(options, {
      steps,
      rendererName,
      learningRate: adviceOf(options.model, TRIED_RATES, () => USUAL_RATE),
      best: BEST,
    }),
    /** Existing groups have their own sizes. */
    groupSize:
      typeof options.environments === "object" ? undefined : (options.groupSize ?? DEFAULT_GROUP_SIZE),
    groupsPerBatch: options.groupsPerBatch,
    maxTokens: options.maxTokens,
    temperature: options.temperature,
    advantages: options.advantages,
    dropConstantGroups: options.dropConstantGroups,
    kl: kl && { ...kl, reference: kl.reference ?? options.model },
    // Off policy, an unclipped ratio can become arbitrarily large.
    loss: loss ?? (mode === "asynchronous" ? ("ppo" as const) : ("importance_sampling" as const)),
    substeps: options.substeps,
    measurePostKl: options.measurePostKl,
    mode,
    followWeights: options.followWeights,
    minibatches: options.minibatches ?? (mode === "streamed" ? DEFAULT_MINIBATCHES : 1),
    maxStepsOffPolicy: mode === "asynchronous" ? (options.maxStepsOffPolicy ?? DEFAULT_STEPS_OFF_POLICY) : 0,
  };
}

/** Settings for `config.json`, with the Python cookbook's names where it has the same ones. */
export function reinforcementConfig(
  settings: ReinforcementRunSettings,
  { limits, parseErrors, termination, toolExecution }: RolloutSettings,
): Readonly<Record<string, unknown>> {
  const { groupsPerBatch, minibatches, maxStepsOffPolicy, loss } = settings;
  return {
    ...configOf(settings),
    ...keptOptions(REINFORCEMENT_OPTIONS, settings),
    loss_fn: lossOf(loss).name,
    loss_fn_config: typeof loss === "object" && "config" in loss ? (loss.config ?? null) : null,
    stream_minibatch_config:
      minibatches === 1 ? null : { groups_per_batch: groupsPerBatch, num_minibatches: minibatches },
    async_config:
      maxStepsOffPolicy === 0
        ? null
        : { max_steps_off_policy: maxStepsOffPolicy, groups_per_batch: groupsPerBatch },
    rollouts: { limits, parseErrors, termination, toolExecution },
  };
}

/** Describes the run before it starts. */
export function describeReinforcement(
  settings: ReinforcementRunSettings,
  folder: string | undefined,
  others: readonly DescribedLine[],
): string {
  const { steps, groupsPerBatch, groupSize, substeps, kl } = settings;
  const tries = groupSize === undefined ? "" : ` with ${groupSize} tries each`;
  const updates = substeps === 1 ? "" : `, ${substeps} updates a step`;
  return describeSettings([
    describeModel(settings),
    ["renderer", settings.rendererName],
    [
      "steps",
      `${steps.toLocaleString("en-US")} of ${groupsPerBatch} groups${tries}${updates}, ${modeOf(settings)}`,
    ],
    ["loss", `${lossOf(settings.loss).name}, advantages by ${settings.advantages}`],
    ...(kl === undefined ? [] : [["kl", `${kl.coefficient} to ${kl.reference}`] satisfies DescribedLine]),
    describeRate(settings),
    ...others,
    ...(folder === undefined ? [] : [["folder", folder] satisfies DescribedLine]),
  ]);
}

function modeOf({ mode, minibatches, maxStepsOffPolicy }: ReinforcementRunSettings): string {
  switch (mode) {
    case "synchronous":
      return mode;
    case "streamed":
      return `streamed in ${minibatches} parts`;
    case "asynchronous":
      return `asynchronous, at most ${maxStepsOffPolicy} ${maxStepsOffPolicy === 1 ? "step" : "steps"} behind`;
    default:
      return mode satisfies never;
  }
}
