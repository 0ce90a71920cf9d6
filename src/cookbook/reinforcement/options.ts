import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import { checkKeys, checkObject, wrongValue } from "../../wire/index.js";
import type { Problem } from "../environments/index.js";
import { checkSettings } from "../rollouts/settings.js";
import { checkStrategy } from "../rollouts/strategies.js";
import { checkChoice, checkCount, checkPositive, checkRunOptions, type RunOptions } from "../runs/options.js";
import type { AdvantageRule } from "./advantages.js";
import type { RolledGroup } from "./group-feed.js";
import {
  ACTING_KEYS,
  type ActingOptions,
  checkSource,
  SOURCE_KEYS,
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
 * How sampling and training share the time. `synchronous`: all of a batch is sampled, then trained on. `streamed`: the
 * same, but each part of the batch is trained on as soon as it is there. `asynchronous`: the next batches are sampled
 * while one is trained on, with weights that are a few steps older.
 */
export type ReinforcementMode = "synchronous" | "streamed" | "asynchronous";

/** Keeps a model near another one. */
export interface KlReferenceOptions {
  /** How much a nat of difference takes off the advantage. */
  readonly coefficient: number;
  /** How much of the difference of later tokens counts for earlier ones. Default: 0, each token for itself. */
  readonly discount?: number | undefined;
  /** The name of a model, or a `tinker://` path of sampler weights. Default: the base model. */
  readonly reference?: string | undefined;
}

/** A loss with its settings. */
export type LossOption = {
  [N in PolicyLossName]: { readonly name: N; readonly config?: PolicyLossConfig<N> };
}[PolicyLossName];

/** The episodes that a step has learnt from, those of constant groups included. */
export interface StepRollouts {
  readonly step: number;
  readonly groups: readonly RolledGroup[];
}

/** What `trainReinforcement` takes besides the problems. */
export interface ReinforcementSettings extends RunOptions, ActingOptions {
  /** Tries at each problem, whose rewards are compared. Default: 16. */
  readonly groupSize?: number | undefined;
  /** Groups in a step. Default: 32. */
  readonly groupsPerBatch?: number | undefined;
  /** Default: as many as it takes for each problem to come once, where their number is known. */
  readonly steps?: number | undefined;
  /** What an episode is compared with. Default: `mean`, that of its group. */
  readonly advantages?: AdvantageRule | undefined;
  /** Whether groups that were rewarded alike are left out of the data, as they teach nothing. Default: yes. */
  readonly dropConstantGroups?: boolean | undefined;
  /** Takes the difference to a reference off the advantages. Default: no. */
  readonly kl?: KlReferenceOptions | undefined;
  /**
   * What else changes the advantages. Asked for anew when the run goes on after a failure: a server that came back knows
   * no samplers of before.
   */
  readonly penalties?:
    | ((service: ServiceClient) => readonly AdvantagePenalty[] | Promise<readonly AdvantagePenalty[]>)
    | undefined;
  /** Default: `importance_sampling`; `ppo` in the asynchronous mode. */
  readonly loss?: PolicyLossName | LossOption | PolicyLoss | undefined;
  /** Optimizer steps that a batch is cut into. Default: 1. */
  readonly substeps?: number | undefined;
  /** Whether it is measured how far each step moved the model, for another pass of the sampler. Default: no. */
  readonly measurePostKl?: boolean | undefined;
  /** Default: `synchronous`. */
  readonly mode?: ReinforcementMode | undefined;
  /** Parts of a substep that are trained on as soon as they are sampled. Default: 4 in the streamed mode, else 1. */
  readonly minibatches?: number | undefined;
  /** Steps that the weights which sample may be behind, in the asynchronous mode. Default: 1. */
  readonly maxStepsOffPolicy?: number | undefined;
  /**
   * Told the episodes of each step, once all of them are there; again where a step is trained again after a failure. What
   * it throws ends the run.
   */
  readonly onRollouts?: ((rollouts: StepRollouts) => void | Promise<void>) | undefined;
}

/** What `trainReinforcement` needs: a service, a model, and problems with a reward or environments. */
export type TrainReinforcementOptions<P extends Problem = Problem> = ReinforcementSettings & SourceOptions<P>;

const OWN_KEYS = [
  ...[...SOURCE_KEYS, ...ACTING_KEYS],
  ...([
    "groupSize",
    "groupsPerBatch",
    "steps",
    "advantages",
    "dropConstantGroups",
    "kl",
    "penalties",
  ] as const),
  ...([
    "loss",
    "substeps",
    "measurePostKl",
    "mode",
    "minibatches",
    "maxStepsOffPolicy",
    "onRollouts",
  ] as const),
] satisfies Exclude<keyof TrainReinforcementOptions, keyof RunOptions>[];

const MODES: readonly ReinforcementMode[] = ["synchronous", "streamed", "asynchronous"];
const ADVANTAGES: readonly AdvantageRule[] = ["mean", "mean-deviation", "leave-one-out"];
const KL_KEYS: ReadonlySet<string> = new Set([
  "coefficient",
  "discount",
  "reference",
] satisfies (keyof KlReferenceOptions)[]);
const LOSS_KEYS: ReadonlySet<string> = new Set(["name", "config"] satisfies (keyof LossOption)[]);

/** Refuses what no run could be made of, before anything is read or sent. */
export function checkReinforcementOptions<P extends Problem>(options: TrainReinforcementOptions<P>): void {
  checkRunOptions(options, "trainReinforcement", OWN_KEYS);
  checkSource(options);
  for (const field of [
    "groupSize",
    "groupsPerBatch",
    "steps",
    "maxTokens",
    "substeps",
    "minibatches",
  ] as const)
    checkCount(options, field, 1);
  checkCount(options, "maxStepsOffPolicy", 1);
  checkPositive(options, "temperature");
  checkChoice("advantages", options.advantages, ADVANTAGES);
  checkChoice("mode", options.mode, MODES);
  checkSettings(options);
  checkStrategy(options.strategy);
  for (const field of ["penalties", "onRollouts"] as const) {
    const value: unknown = options[field];
    if (value !== undefined && typeof value !== "function") throw wrongValue(field, "a function", value);
  }
  if (typeof options.environments === "object" && options.groupSize !== undefined)
    throw new ValidationError("groupSize", "groupSize is that of the environments, which are there already");
  const { mode = "synchronous", minibatches = 1, maxStepsOffPolicy, kl, loss } = options;
  if (options.problems !== undefined && options.groupSize === 1 && !kl && !options.penalties)
    throw new ValidationError(
      "groupSize",
      "groupSize must be at least 2: one answer alone is compared with nothing",
    );
  if (options.best && (options.evaluators ?? []).length === 0)
    throw new ValidationError("best", "best needs evaluators, as environmentEvaluator, to know what is best");
  if (mode === "synchronous" && minibatches > 1)
    throw new ValidationError("minibatches", 'minibatches needs mode "streamed" or "asynchronous"');
  if (mode !== "asynchronous" && maxStepsOffPolicy !== undefined)
    throw new ValidationError("maxStepsOffPolicy", 'maxStepsOffPolicy needs mode "asynchronous"');
  if (kl !== undefined) {
    checkObject(kl, "kl");
    checkKeys(kl, KL_KEYS, "kl");
    checkPositive(kl, "coefficient", "kl.");
    if (kl.coefficient === undefined) throw wrongValue("kl.coefficient", "a number above 0", kl.coefficient);
    const { discount = 0 } = kl;
    if (!(discount >= 0 && discount <= 1)) throw wrongValue("kl.discount", "a number from 0 to 1", discount);
  }
  if (loss !== undefined) lossOf(loss);
}

/** The loss by its name, with settings of its own, or one of yours. */
export function lossOf(loss: NonNullable<ReinforcementSettings["loss"]>): PolicyLoss {
  if (typeof loss === "string") {
    checkChoice("loss", loss, POLICY_LOSSES);
    return policyLoss(loss);
  }
  checkObject(loss, "loss");
  if ("forwardBackward" in loss) return loss as PolicyLoss;
  checkKeys(loss, LOSS_KEYS, "loss");
  checkChoice("loss.name", loss.name, POLICY_LOSSES);
  return policyLoss(loss.name, loss.config);
}
