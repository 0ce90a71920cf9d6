import type { ServiceClient } from "../../clients/index.js";
import * as f from "../../wire/fields/index.js";
import type { Problem } from "../environments/index.js";
import { checkBest, RUN_OPTIONS, type RunOptions } from "../runs/options.js";
import { ADVANTAGE_RULES, type AdvantageRule } from "./advantages.js";
import type { RolloutGroup } from "./group-feed.js";
import {
  ACTING_OPTIONS,
  type ActingOptions,
  checkSource,
  SOURCE_OPTIONS,
  type SourceOptions,
} from "./group-source.js";
import type { AdvantagePenalty } from "./kl.js";
import {
  POLICY_LOSSES,
  type PolicyLoss,
  type PolicyLossConfig,
  type PolicyLossName,
  policyLoss,
} from "./losses.js";

/**
 * How sampling and training share the time. `synchronous`: a whole batch is sampled, then trained. `streamed`: the
 * same, but each part of the batch is trained as soon as it is sampled. `asynchronous`: the next batches are sampled
 * during training, with weights that are a few steps older.
 */
export type ReinforcementMode = "synchronous" | "streamed" | "asynchronous";

/** KL penalty that keeps a model near a reference. */
export interface KlReferenceOptions {
  /** Advantage subtracted per nat of difference. */
  readonly coefficient: number;
  /** How much of the difference of later tokens counts for earlier ones. Default: 0, only a token's own. */
  readonly discount?: number | undefined;
  /** Name of a base model, or a `tinker://` path of sampler weights. Default: the base model. */
  readonly reference?: string | undefined;
}

/** Name of a loss with its settings. */
export type LossOption = {
  [N in PolicyLossName]: { readonly name: N; readonly config?: PolicyLossConfig<N> };
}[PolicyLossName];

/** Episodes of a step, including constant groups. */
export interface StepRollouts {
  readonly step: number;
  readonly groups: readonly RolloutGroup[];
}

/** Default number of answers per problem: enough to see both good and bad ones. */
export const DEFAULT_GROUP_SIZE = 16;

/** Options of `trainReinforcement` besides problems and environments. */
export interface ReinforcementSettings extends RunOptions, ActingOptions {
  /** Answers per problem, whose rewards are compared. Default: 16. */
  readonly groupSize?: number | undefined;
  /** Groups in a step. Default: 32. */
  readonly groupsPerBatch?: number | undefined;
  /** Number of steps. Default: one pass over the problems, if their number is known. */
  readonly steps?: number | undefined;
  /** Baseline that an episode's reward is compared with. Default: `mean`, that of its group. */
  readonly advantages?: AdvantageRule | undefined;
  /** Whether groups with equal rewards are left out of the data, because they teach nothing. Default: yes. */
  readonly dropConstantGroups?: boolean | undefined;
  /** Subtracts the difference to a reference from the advantages. Default: no. */
  readonly kl?: KlReferenceOptions | undefined;
  /**
   * Makes further penalties on the advantages. Called again when the run recovers from a failure, because a restarted
   * server has lost its samplers.
   */
  readonly penalties?:
    | ((service: ServiceClient) => readonly AdvantagePenalty[] | Promise<readonly AdvantagePenalty[]>)
    | undefined;
  /** Loss of the policy. Default: `importance_sampling`; `ppo` in the asynchronous mode. */
  readonly loss?: PolicyLossName | LossOption | PolicyLoss | undefined;
  /** Optimizer steps per batch. Default: 1. */
  readonly substeps?: number | undefined;
  /** Measures how far each step moved the model, for one more scoring pass. Default: no. */
  readonly measurePostKl?: boolean | undefined;
  /** How sampling and training share the time. Default: `synchronous`. */
  readonly mode?: ReinforcementMode | undefined;
  /** Parts of a substep that are trained as soon as they are sampled. Default: 4 in the streamed mode, else 1. */
  readonly minibatches?: number | undefined;
  /** Largest age of the sampling weights in steps, in the asynchronous mode. Default: 1. */
  readonly maxStepsOffPolicy?: number | undefined;
  /**
   * Whether running episodes switch to newer weights at their next turn, in the asynchronous mode. Default: they keep
   * those they began with.
   */
  readonly followWeights?: boolean | undefined;
  /**
   * Called with the episodes of each step once all are sampled, and again if the step is repeated after a failure. If
   * it throws, the run ends.
   */
  readonly onRollouts?: ((rollouts: StepRollouts) => void | Promise<void>) | undefined;
}

/** Options of `trainReinforcement`: a service, a model, and problems with a reward or environments. */
export type TrainReinforcementOptions<P extends Problem = Problem> = ReinforcementSettings & SourceOptions<P>;

const MODES = ["synchronous", "streamed", "asynchronous"] as const satisfies readonly ReinforcementMode[];

const KL_OPTIONS = {
  coefficient: f.option(f.positive, "strength of the KL penalty to the reference", {
    flag: "kl",
    config: "kl_penalty_coef",
    unset: 0,
  }),
  discount: f.option(
    f.withDefault(f.portion, 0),
    "how much of the difference of later tokens counts for earlier ones",
    { config: "kl_discount_factor", unset: 0 },
  ),
  reference: f.option(f.optional(f.text), "model or sampler weights to stay near", {
    otherwise: "the base model",
    config: "kl_reference",
  }),
} satisfies f.OptionsOf<KlReferenceOptions>;

/** The option table of `trainReinforcement` without problems and environments. */
export const REINFORCEMENT_OPTIONS = {
  ...RUN_OPTIONS,
  schedule: f.defaulting(RUN_OPTIONS.schedule, "constant"),
  ...ACTING_OPTIONS,
  steps: f.option(f.optional(f.positiveInteger), "optimizer updates", {
    otherwise: "each problem once",
    flag: true,
  }),
  groupSize: f.option(f.optional(f.positiveInteger), "answers to each problem, whose rewards are compared", {
    otherwise: String(DEFAULT_GROUP_SIZE),
    flag: true,
    config: "group_size",
  }),
  groupsPerBatch: f.option(f.withDefault(f.positiveInteger, 32), "groups in a step", {
    flag: true,
    config: "groups_per_batch",
  }),
  advantages: f.option(
    f.withDefault(f.oneOf(...ADVANTAGE_RULES), "mean"),
    "what the reward of an episode is compared with",
    { config: "advantages" },
  ),
  dropConstantGroups: f.option(
    f.withDefault(f.boolean, true),
    "leave out groups whose rewards are all the same",
    { config: "remove_constant_reward_groups" },
  ),
  kl: f.option(f.optional(f.message(KL_OPTIONS)), "keeps the model near a reference"),
  penalties: f.option(
    f.optional(f.functionOf<NonNullable<ReinforcementSettings["penalties"]>>()),
    "what else changes the advantages",
  ),
  loss: f.option(
    f.optional(
      f.customField<NonNullable<ReinforcementSettings["loss"]>>((given) => {
        lossOf(given as NonNullable<ReinforcementSettings["loss"]>);
        return given as NonNullable<ReinforcementSettings["loss"]>;
      }),
    ),
    `policy loss: ${POLICY_LOSSES.join(", ")}`,
    { otherwise: "importance_sampling; ppo in the asynchronous mode", flag: true },
  ),
  substeps: f.option(f.withDefault(f.positiveInteger, 1), "optimizer steps that a batch is cut into", {
    config: "num_substeps",
  }),
  measurePostKl: f.option(f.withDefault(f.boolean, false), "measure how far each step moved the model", {
    config: "compute_post_kl",
  }),
  mode: f.option(
    f.withDefault(f.oneOf(...MODES), "synchronous"),
    "how sampling and training share the time",
    { flag: true, config: "mode" },
  ),
  minibatches: f.option(
    f.optional(f.positiveInteger),
    "parts of a substep that are trained on as soon as they are sampled",
    { otherwise: "4 in the streamed mode, else 1" },
  ),
  maxStepsOffPolicy: f.option(
    f.optional(f.positiveInteger),
    "steps by which the sampling weights may be older, in the asynchronous mode",
    { otherwise: "1", flag: true },
  ),
  followWeights: f.option(
    f.withDefault(f.boolean, false),
    "move episodes under way to newer weights, in the asynchronous mode",
    { flag: true, config: "follow_weights" },
  ),
  onRollouts: f.option(
    f.optional(f.functionOf<NonNullable<ReinforcementSettings["onRollouts"]>>()),
    "called with the episodes of each step",
  ),
} satisfies f.OptionsOf<ReinforcementSettings>;

const TABLE = f.optionTable({ ...REINFORCEMENT_OPTIONS, ...SOURCE_OPTIONS }, (options) => {
  checkSource(options as SourceOptions<Problem>);
  checkBest(options);
  const { mode, minibatches = 1, maxStepsOffPolicy, followWeights, kl, groupSize } = options;
  if (typeof options.environments === "object" && groupSize !== undefined)
    throw f.wrongField("groupSize", "cannot be set: the given environments already determine it");
  if (options.problems !== undefined && groupSize === 1 && !kl && !options.penalties)
    throw f.wrongField("groupSize", "must be at least 2: one answer alone is compared with nothing");
  if (options.agent !== undefined) checkAgentRun(options);
  if (options.best && options.evaluators.length === 0)
    throw f.wrongField("best", "needs evaluators, such as environmentEvaluator, to measure what is best");
  if (mode === "synchronous" && minibatches > 1)
    throw f.wrongField("minibatches", 'needs mode "streamed" or "asynchronous"');
  if (mode !== "asynchronous" && maxStepsOffPolicy !== undefined)
    throw f.wrongField("maxStepsOffPolicy", 'needs mode "asynchronous"');
  if (mode !== "asynchronous" && followWeights)
    throw f.wrongField("followWeights", 'needs mode "asynchronous"');
});

/** Options about answers do not apply to agents, which handle their own answers. */
function checkAgentRun({ limits, parseErrors, toolExecution }: ActingOptions): void {
  const given =
    limits?.maxToolCalls !== undefined
      ? "limits.maxToolCalls"
      : parseErrors !== undefined
        ? "parseErrors"
        : toolExecution !== undefined
          ? "toolExecution"
          : undefined;
  if (given !== undefined)
    throw f.wrongField(
      given,
      "has no effect on an agent, which reads its answers and calls its tools itself",
    );
}

/** The checked options of `trainReinforcement`, with defaults filled in. */
export type FilledReinforcementOptions = f.FilledMessage<typeof REINFORCEMENT_OPTIONS> &
  SourceOptions<Problem>;

/** Checks the options of `trainReinforcement` before anything is read or sent. */
export function checkReinforcementOptions<P extends Problem>(
  options: TrainReinforcementOptions<P>,
): FilledReinforcementOptions {
  return TABLE.check(options, "trainReinforcement") as FilledReinforcementOptions;
}

const policyLossName = f.oneOf(...POLICY_LOSSES);
const namedLoss = f.message({ name: policyLossName, config: f.optional(f.opaque) } satisfies Record<
  keyof LossOption,
  unknown
>);

/** The loss by its name, with its own settings, or a custom one. */
export function lossOf(loss: NonNullable<ReinforcementSettings["loss"]>): PolicyLoss {
  if (typeof loss === "string") {
    policyLossName.check(loss, "loss");
    return policyLoss(loss);
  }
  f.checkObject(loss, "loss");
  if ("forwardBackward" in loss) return loss as PolicyLoss;
  namedLoss.check(loss, "loss");
  return policyLoss(loss.name, loss.config);
}
