import type { TrainingClient } from "../../clients/index.js";
import type { RequestOptions } from "../../transport/index.js";
import {
  checkLossFnConfig,
  Datum,
  type ForwardBackwardOutput,
  type LossFnConfig,
  wrongValue,
} from "../../wire/index.js";
import { GSPO_CLIP, gspoLoss } from "./gspo.js";
import { countTaught, type RolloutDatum } from "./rollout-datum.js";

/** The losses that episodes can be trained with. */
export type PolicyLossName = "importance_sampling" | "ppo" | "cispo" | "dro" | "gspo" | "dapo";

/** Their names. */
export const POLICY_LOSSES: readonly PolicyLossName[] = [
  ...(["importance_sampling", "ppo", "cispo", "dro", "gspo", "dapo"] as const),
];

/** The settings of a loss. Clipping thresholds are ratios: 0.8 and 1.2, not 0.2. */
export type PolicyLossConfig<N extends PolicyLossName = PolicyLossName> = LossFnConfig<
  N extends "gspo" | "dapo" ? "ppo" : N
>;

/** How a batch is sent to be learnt from. Gradients add up until the next `optimStep`, as ever. */
export interface PolicyLoss {
  readonly name: string;
  /**
   * Sends its pass before it returns, as an optimizer step may follow at once. What it answers has the logprobs of each
   * datum's targets, for `klSampleTrain`.
   */
  forwardBackward(
    training: Pick<TrainingClient, "forwardBackward" | "forwardBackwardCustom">,
    data: readonly RolloutDatum[],
    options?: RequestOptions,
  ): PromiseLike<ForwardBackwardOutput>;
  /** What it says of a step besides, where it has something to say. */
  measure?(outputs: readonly ForwardBackwardOutput[]): Readonly<Record<string, number>>;
}

/** DAPO clips higher than below, so that unlikely tokens may become likely. */
const DAPO_CLIP = { clipLowThreshold: 0.8, clipHighThreshold: 1.28 };

/**
 * A loss by its name. `importance_sampling`, `ppo`, `cispo` and `dro` are the server's, with its defaults, and sums over
 * tokens. `dapo` is the server's `ppo` with a higher clip, as a mean over all tokens of the data it is given. `gspo` clips
 * the ratio of whole episodes, as a mean over them; it takes a forward pass first.
 */
export function policyLoss<N extends PolicyLossName>(name: N, config?: PolicyLossConfig<N>): PolicyLoss;
export function policyLoss(name: PolicyLossName, given?: PolicyLossConfig): PolicyLoss {
  const config = (lossFn: string) => checkLossFnConfig(lossFn, given);
  switch (name) {
    case "importance_sampling":
    case "ppo":
    case "cispo":
      return serverLoss(name, config(name), policyInputs);
    case "dro":
      // It pulls all tokens to where they were sampled, also those that have no advantage because they were read.
      return serverLoss(name, config(name), (datum) => ({ ...policyInputs(datum), weights: datum.mask }));
    case "dapo":
      return { ...serverLoss("ppo", { ...DAPO_CLIP, ...config("ppo") }, tokenMeanInputs), name };
    case "gspo": {
      const clip = { ...GSPO_CLIP, ...config("ppo") };
      return {
        name,
        forwardBackward: (training, data, options) =>
          training.forwardBackwardCustom(toData(data, policyInputs), gspoLoss(data, clip), options),
      };
    }
    default:
      throw wrongValue("name", `one of ${POLICY_LOSSES.join(", ")}`, name satisfies never);
  }
}

type Inputs = Readonly<Record<string, Float32Array | Int32Array>>;
/** The inputs of a datum, of a batch in which so many tokens are learnt from. */
type ToInputs = (datum: RolloutDatum, batchTokens: number) => Inputs;

function serverLoss(
  lossFn: "importance_sampling" | "ppo" | "cispo" | "dro",
  config: LossFnConfig | undefined,
  toInputs: ToInputs,
): PolicyLoss {
  return {
    name: lossFn,
    forwardBackward: (training, data, options) =>
      training.forwardBackward(toData(data, toInputs), lossFn, { ...options, config }),
  };
}

function toData(data: readonly RolloutDatum[], toInputs: ToInputs): Datum[] {
  const batchTokens = countTaught(data);
  return data.map(
    (datum) => new Datum({ modelInput: datum.input, lossFnInputs: toInputs(datum, batchTokens) }),
  );
}

/** What was read or is masked has no advantage, so no server needs to know the mask. */
function policyInputs({ targetTokens, logprobs, advantages }: RolloutDatum) {
  return { targetTokens, logprobs, advantages };
}

/** Clipping does not depend on the size of an advantage: as a share of the batch it gives the mean. */
function tokenMeanInputs(datum: RolloutDatum, batchTokens: number) {
  return { ...policyInputs(datum), advantages: datum.advantages.map((each) => each / batchTokens) };
}
