import type { TrainingClient } from "../../clients/index.js";
import type { RequestOptions } from "../../transport/index.js";
import {
  checkLossFnConfig,
  Datum,
  type ForwardBackwardOutput,
  GSPO_CLIP,
  type LossFnConfig,
  wrongValue,
} from "../../wire/index.js";
import { GSPO_INPUTS, gspoLoss, gspoOfEpisode, scalesOfEpisodes } from "./gspo.js";
import { countTrainedTokens, type RolloutDatum } from "./rollout-datum.js";
import { StoredLoss } from "./stored-loss.js";

/** Names of the losses for training on episodes. */
export type PolicyLossName = "importance_sampling" | "ppo" | "cispo" | "dro" | "gspo" | "dapo";

/** The values of `PolicyLossName`. */
export const POLICY_LOSSES: readonly PolicyLossName[] = [
  ...(["importance_sampling", "ppo", "cispo", "dro", "gspo", "dapo"] as const),
];

/** Settings of a loss. Clipping thresholds are ratios: 0.8 and 1.2, not 0.2. */
export type PolicyLossConfig<N extends PolicyLossName = PolicyLossName> = LossFnConfig<
  N extends "gspo" | "dapo" ? "ppo" : N
>;

/** A loss for training on episodes. Gradients accumulate until the next `optimStep`. */
export interface PolicyLoss {
  readonly name: string;
  /**
   * Sends its pass before it returns, because an optimizer step may follow at once. The result has the logprobs of each
   * datum's targets, for `klSampleTrain`.
   */
  forwardBackward(
    training: Pick<TrainingClient, "forwardBackward" | "forwardBackwardCustom">,
    data: readonly RolloutDatum[],
    options?: RequestOptions,
  ): PromiseLike<ForwardBackwardOutput>;
  /** Called once for each training client before its first pass. */
  prepare?(training: Pick<TrainingClient, "createCustomLoss">): Promise<void>;
  /** Returns extra metrics of a step. */
  measure?(outputs: readonly ForwardBackwardOutput[]): Readonly<Record<string, number>>;
}

/** DAPO's upper clip is wider than its lower one, so that unlikely tokens may become likely. */
const DAPO_CLIP = { clipLowThreshold: 0.8, clipHighThreshold: 1.28 };

/**
 * Finds a loss by its name. `importance_sampling`, `ppo`, `cispo` and `dro` are the server's, with its defaults, summed
 * over tokens. `dapo` is the server's `ppo` with a higher clip, averaged over all trained tokens. `gspo` clips the
 * ratio of whole episodes, averaged over them; it needs an extra forward pass where the server runs no custom losses, or an
 * episode is cut into several data.
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
      // DRO pulls every token towards its sampled probability, also tokens without an advantage because they were read.
      return serverLoss(name, config(name), (datum) => ({ ...policyInputs(datum), weights: datum.mask }));
    case "dapo":
      return { ...serverLoss("ppo", { ...DAPO_CLIP, ...config("ppo") }, tokenMeanInputs), name };
    case "gspo": {
      const clip = { ...GSPO_CLIP, ...config("ppo") } as typeof GSPO_CLIP;
      const stored = new StoredLoss(gspoOfEpisode(clip), { inputs: GSPO_INPUTS, name });
      return {
        name,
        prepare: (training) => stored.prepare(training),
        forwardBackward: (training, data, options) => {
          const handle = stored.of(training);
          const scales = handle && scalesOfEpisodes(data);
          if (handle === undefined || scales === undefined)
            return training.forwardBackwardCustom(toData(data, policyInputs), gspoLoss(data, clip), options);
          const episodes = data.map((datum, index) => episodeDatum(datum, scales[index]!));
          return training.forwardBackwardCustom(episodes, handle, options).then((output) => {
            const { "custom/clipped_tokens:sum": clippedTokens = 0, ...metrics } = output.metrics;
            return { ...output, metrics: { ...metrics, "clippedTokens:sum": clippedTokens } };
          });
        },
      };
    }
    default:
      throw wrongValue("name", `one of ${POLICY_LOSSES.join(", ")}`, name satisfies never);
  }
}

type Inputs = Readonly<Record<string, Float32Array | Int32Array>>;
/** The inputs of a datum, given the number of trained tokens in its batch. */
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
  const batchTokens = countTrainedTokens(data);
  return data.map(
    (datum) => new Datum({ modelInput: datum.input, lossFnInputs: toInputs(datum, batchTokens) }),
  );
}

function episodeDatum(datum: RolloutDatum, scale: number): Datum {
  const { input: modelInput, targetTokens, logprobs: samplingLogprobs, advantages, mask } = datum;
  const lossFnInputs = { targetTokens, samplingLogprobs, advantages, mask, scale: scalar(scale) };
  return new Datum({ modelInput, lossFnInputs });
}

const scalar = (value: number) => ({ data: Float32Array.of(value), dtype: "float32" as const, shape: [] });

/** Tokens that were read or masked have no advantage, so no server needs the mask. */
function policyInputs({ targetTokens, logprobs, advantages }: RolloutDatum) {
  return { targetTokens, logprobs, advantages };
}

/** Clipping does not depend on the size of an advantage, so dividing by the number of tokens gives the mean. */
function tokenMeanInputs(datum: RolloutDatum, batchTokens: number) {
  return { ...policyInputs(datum), advantages: datum.advantages.map((each) => each / batchTokens) };
}
