import { messageOf, TinkerError } from "../../../errors.js";
import {
  add,
  backward,
  clamp,
  div,
  exp,
  minimum,
  mul,
  stopGradient,
  sub,
  sum,
  type Tensor,
  tensor,
  variable,
  where,
} from "../../../training/autograd/index.js";
import {
  combineDatumMetrics,
  compileLossGraph,
  type EvaluatedDatum,
  evaluateProgram,
  PassMeter,
} from "../../../training/loss-graph/index.js";
import { GSPO_CLIP } from "../../../wire/training/losses.js";
import { type EngineDatum, EngineInputError, type ForwardBackwardCall, type LossConfig } from "../engine.js";
import type { SequenceLoss } from "./forward-backward-step.js";

/** The loss of one sequence at these logprobs. */
type EvaluateDatum = (datum: EngineDatum, logprobs: Float32Array) => EvaluatedDatum;

/** The losses of a pass that are computed sequence by sequence, in the order of its data. */
export class SequenceLosses {
  readonly #evaluate: EvaluateDatum;
  readonly #metrics: ReadonlyMap<string, number>[] = [];
  #loss = 0;

  constructor(call: ForwardBackwardCall) {
    this.#evaluate = call.lossFn === "gspo" ? gspoOf(call.lossFnConfig) : customOf(call);
  }

  /** The loss of the data that a step computes together. */
  step(data: readonly EngineDatum[]): SequenceLoss {
    return {
      kind: "sequence",
      differentiate: (logprobs) => {
        const gradients = new Float32Array(logprobs.length);
        let at = 0;
        for (const datum of data) {
          const end = at + datum.targetTokens.length;
          gradients.set(this.#gradientOf(datum, logprobs.slice(at, end)), at);
          at = end;
        }
        return gradients;
      },
    };
  }

  #gradientOf(datum: EngineDatum, logprobs: Float32Array): Float64Array {
    try {
      const { loss, gradient, metrics } = this.#evaluate(datum, logprobs);
      this.#loss += loss;
      this.#metrics.push(metrics);
      return gradient;
    } catch (error) {
      // Errors of autograd: shapes that do not fit, or a loss that is not finite.
      if (!(error instanceof TinkerError)) throw error;
      throw new EngineInputError(`data[${this.#metrics.length}]: ${messageOf(error)}`);
    }
  }

  /** The sum of the losses, and the metrics over all data. */
  get metrics(): Record<string, number> {
    return { ...combineDatumMetrics(this.#metrics), "loss:sum": this.#loss };
  }
}

function customOf({ customLoss, data }: ForwardBackwardCall): EvaluateDatum {
  if (customLoss === undefined) throw new EngineInputError("the custom loss is missing");
  const program = compileLossGraph(customLoss.graph, customLoss.inputs);
  const [logprobsInput] = customLoss.inputs;
  const meter = new PassMeter(data.reduce((targets, { targetTokens }) => targets + targetTokens.length, 0));
  return ({ tokens, targetsPerToken, customInputs = [] }, logprobs) => {
    meter.startDatum(logprobs.length);
    const shape = logprobsInput!.rank === 2 ? [tokens.length, targetsPerToken] : [logprobs.length];
    const inputs = customInputs.map((input) => ({
      tensor: tensor({ data: input.values, shape: input.shape }),
      dtype: input.dtype,
    }));
    return evaluateProgram(program, { values: logprobs, shape }, inputs, meter);
  };
}

/**
 * GSPO as Tinker documents it: one ratio for a sequence, `exp(mean(logprob - sampled logprob))` over the tokens of the
 * mask, whose gradient each token gets by its own logprob; clipped as in PPO, summed over tokens.
 */
function gspoOf(config: LossConfig): EvaluateDatum {
  const min = config.clipLowThreshold ?? GSPO_CLIP.clipLowThreshold;
  const max = config.clipHighThreshold ?? GSPO_CLIP.clipHighThreshold;
  return (datum, values) => {
    const { logprobs: sampled, advantages, weights = new Float32Array(values.length).fill(1) } = datum;
    // Without a mask, the tokens that are trained.
    const mask = datum.sequenceRatioMask ?? weights.map((weight, at) => weight * advantages![at]!);
    const logprobs = variable(values, { label: "logprobs" });
    const length = mask.filter((each) => each !== 0).length;
    const drift = sum(where(mask, sub(stopGradient(logprobs), sampled!), 0));
    const logRatio = length === 0 ? tensor(0) : div(drift, length);
    const ratio = exp(sub(add(logRatio, logprobs), stopGradient(logprobs)));
    const clipped = clampBetween(ratio, datum, { min, max });
    const objective = minimum(mul(ratio, advantages!), mul(clipped, advantages!));
    const counts = weights.map((weight, at) => Number(weight !== 0 && advantages![at] !== 0));
    const loss = sum(where(counts, mul(objective, mul(weights, -1)), 0));
    return { loss: loss.item(), gradient: backward(loss).of(logprobs), metrics: new Map() };
  };
}

/** Clips between thresholds that are given for the pass or token by token. */
function clampBetween(
  ratio: Tensor,
  { clipLowThreshold, clipHighThreshold }: EngineDatum,
  bounds: { readonly min: number; readonly max: number },
): Tensor {
  if (clipLowThreshold === undefined && clipHighThreshold === undefined) return clamp(ratio, bounds);
  const low = ratio.values.map((_, at) => clipLowThreshold?.[at] ?? bounds.min);
  const high = ratio.values.map((_, at) => clipHighThreshold?.[at] ?? bounds.max);
  const isLow = ratio.values.map((each, at) => Number(each < low[at]!));
  const isHigh = ratio.values.map((each, at) => Number(each > high[at]!));
  return where(isHigh, high, where(isLow, low, ratio));
}
