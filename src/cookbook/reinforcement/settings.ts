import type { Problem } from "../environments/index.js";
import type { RolloutSettings } from "../rollouts/index.js";
import { adviceOf, type TriedRates } from "../runs/hyperparameters.js";
import {
  configOf,
  type DescribedLine,
  describe,
  describeModel,
  describeRate,
  runSettings,
} from "../runs/settings.js";
import type { AdvantageRule } from "./advantages.js";
import { lossOf, type TrainReinforcementOptions } from "./options.js";

/** The tries at a problem when nobody says how many: enough to see both good and bad ones. */
export const DEFAULT_GROUP_SIZE = 16;
export const DEFAULT_GROUPS_PER_BATCH = 32;
const DEFAULT_MINIBATCHES = 4;
const DEFAULT_STEPS_OFF_POLICY = 1;

/** What is best by default: the highest reward of `environmentEvaluator`. */
const BEST = { metric: "test/env/all/reward/total", goal: "higher" } as const;

/** Rates that were found by trying, for models that the formula was not made for. */
const TRIED_RATES: TriedRates = { "tinkerts/nano": 1e-3 };
/** Rewards are noisy: what suits supervised training is too fast for them. */
const USUAL_RATE = { learningRate: 4e-5, reason: "usual for training by reward" };

/** What a run by reward is made with, once every default is decided. */
export type ReinforcementRunSettings = ReturnType<typeof reinforcementSettings>;

/** Every setting of the run. */
export function reinforcementSettings<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  { steps, rendererName }: { readonly steps: number; readonly rendererName: string },
) {
  const { mode = "synchronous", kl, loss } = options;
  return {
    ...runSettings(options, {
      steps,
      rendererName,
      schedule: "constant",
      learningRate: adviceOf(options.model, TRIED_RATES, () => USUAL_RATE),
      best: BEST,
    }),
    /** Groups that are there already have sizes of their own. */
    groupSize:
      typeof options.environments === "object" ? undefined : (options.groupSize ?? DEFAULT_GROUP_SIZE),
    groupsPerBatch: options.groupsPerBatch ?? DEFAULT_GROUPS_PER_BATCH,
    maxTokens: options.maxTokens,
    temperature: options.temperature ?? 1,
    advantages: options.advantages ?? ("mean" satisfies AdvantageRule),
    dropsConstantGroups: options.dropConstantGroups ?? true,
    kl: kl && { ...kl, discount: kl.discount ?? 0, reference: kl.reference ?? options.model },
    // Off policy, a ratio that is not clipped can be as large as it likes.
    loss: loss ?? (mode === "asynchronous" ? ("ppo" as const) : ("importance_sampling" as const)),
    substeps: options.substeps ?? 1,
    measuresPostKl: options.measurePostKl ?? false,
    mode,
    minibatches: options.minibatches ?? (mode === "streamed" ? DEFAULT_MINIBATCHES : 1),
    maxStepsOffPolicy: mode === "asynchronous" ? (options.maxStepsOffPolicy ?? DEFAULT_STEPS_OFF_POLICY) : 0,
  };
}

/** As it stands in `config.json`, under the names of the Python cookbook where it has the same. */
export function reinforcementConfig(
  settings: ReinforcementRunSettings,
  { limits, parseErrors, termination, toolExecution }: RolloutSettings,
): Readonly<Record<string, unknown>> {
  const { groupsPerBatch, minibatches, maxStepsOffPolicy, kl, loss } = settings;
  return {
    ...configOf(settings),
    mode: settings.mode,
    group_size: settings.groupSize ?? null,
    groups_per_batch: groupsPerBatch,
    max_tokens: settings.maxTokens ?? null,
    temperature: settings.temperature,
    advantages: settings.advantages,
    remove_constant_reward_groups: settings.dropsConstantGroups,
    kl_penalty_coef: kl?.coefficient ?? 0,
    kl_discount_factor: kl?.discount ?? 0,
    kl_reference: kl?.reference ?? null,
    loss_fn: lossOf(loss).name,
    loss_fn_config: typeof loss === "object" && "config" in loss ? (loss.config ?? null) : null,
    num_substeps: settings.substeps,
    compute_post_kl: settings.measuresPostKl,
    stream_minibatch_config:
      minibatches === 1 ? null : { groups_per_batch: groupsPerBatch, num_minibatches: minibatches },
    async_config:
      maxStepsOffPolicy === 0
        ? null
        : { max_steps_off_policy: maxStepsOffPolicy, groups_per_batch: groupsPerBatch },
    rollouts: { limits, parseErrors, termination, toolExecution },
  };
}

/** What is about to be done, for people. */
export function describeReinforcement(
  settings: ReinforcementRunSettings,
  folder: string | undefined,
  others: readonly DescribedLine[],
): string {
  const { steps, groupsPerBatch, groupSize, substeps, kl } = settings;
  const tries = groupSize === undefined ? "" : ` with ${groupSize} tries each`;
  const updates = substeps === 1 ? "" : `, ${substeps} updates a step`;
  return describe([
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
