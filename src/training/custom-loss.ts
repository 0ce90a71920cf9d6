import { TinkerError, ValidationError } from "../errors.js";
import { Datum, type ForwardBackwardOutput, TensorData } from "../wire/index.js";
import { firstNonFinite } from "./autograd/backward.js";
import { backward, fromGradients, isTensor, type Operand, Tensor } from "./autograd/index.js";
import type { RegularizerReport } from "./regularizers/report.js";

/** Result of a custom loss computed with tensors of `tinkerts/autograd`. */
export interface TensorLoss {
  /** One element, computed from the logprobs. */
  readonly loss: Tensor;
  readonly metrics?: Readonly<Record<string, number | Tensor>> | undefined;
}

/** Result of a custom loss that computed its own gradients. */
export interface GradientLoss {
  readonly loss: number;
  /** d loss / d logprobs, one array per datum with as many numbers as its logprobs have. */
  readonly gradients: readonly Operand[];
  readonly metrics?: Readonly<Record<string, number | Tensor>> | undefined;
  readonly regularizers?: RegularizerReport | undefined;
}

/** Result of a custom loss: a loss to differentiate, or one with its gradients. */
export type CustomLossOutput = TensorLoss | GradientLoss;

/**
 * A loss over the logprobs of the target tokens: one tensor per datum, in the shape of its `targetTokens`. The data
 * come with all their inputs, also those that no server knows.
 */
export type CustomLossFn = (
  data: readonly Datum[],
  logprobs: readonly Tensor[],
) => CustomLossOutput | Promise<CustomLossOutput>;

/** A custom loss at the present logprobs. */
export interface EvaluatedLoss {
  readonly loss: number;
  /** d loss / d logprobs, per datum. */
  readonly gradients: readonly Float64Array[];
  readonly metrics: Readonly<Record<string, number>>;
  readonly regularizers?: RegularizerReport | undefined;
}

/** Result of `forwardBackwardCustom`; its metrics include those of the loss function. */
export interface CustomLossResult extends ForwardBackwardOutput {
  /** Report on each term, for a loss made with `withRegularizers`. */
  readonly regularizers?: RegularizerReport | undefined;
}

/** A loss that works on plain arrays and returns its own gradients, made with anything. */
export function withGradients(
  lossFn: (data: readonly Datum[], logprobs: readonly Float32Array[]) => GradientLoss | Promise<GradientLoss>,
): CustomLossFn {
  return (data, logprobs) =>
    lossFn(
      data,
      logprobs.map((each) => new Float32Array(each.values)),
    );
}

/** Calls a custom loss and works out its gradients, whichever way it was written. */
export async function evaluateCustomLoss(
  lossFn: CustomLossFn,
  data: readonly Datum[],
  logprobs: readonly Tensor[],
): Promise<EvaluatedLoss> {
  const output = await lossFn(data, logprobs);
  const loss = lossTensor(output, logprobs);
  const gradients = backward(loss);
  if (!logprobs.some((each) => gradients.has(each))) {
    throw new ValidationError(
      "loss",
      "The loss does not depend on the logprobs of any datum: it was made of constants, or behind stopGradient.",
    );
  }
  return {
    loss: loss.item(),
    gradients: logprobs.map((each) => gradients.of(each)),
    metrics: readMetrics(output.metrics ?? {}),
    ...("regularizers" in output && output.regularizers !== undefined
      ? { regularizers: output.regularizers }
      : {}),
  };
}

function lossTensor(output: CustomLossOutput, logprobs: readonly Tensor[]): Tensor {
  if (typeof output === "object" && output !== null) {
    if (isTensor(output.loss)) return output.loss;
    if (typeof output.loss === "number" && "gradients" in output && Array.isArray(output.gradients)) {
      return fromGradients(output.loss, logprobs, output.gradients, "custom loss");
    }
  }
  throw new ValidationError(
    "lossFn",
    "The loss function must return { loss, metrics? } with a loss of tinkerts/autograd, or { loss, gradients, metrics? } " +
      "with a number and one array per datum.",
  );
}

function readMetrics(metrics: Readonly<Record<string, number | Tensor>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => {
      const number = isTensor(value) ? value.item() : value;
      if (typeof number === "number") return [name, number];
      throw new ValidationError(
        `metrics.${name}`,
        `The metric ${name} must be a number, got ${number === null ? "null" : typeof number}`,
      );
    }),
  );
}

/** The data for the forward pass: what the server knows, with weights of zero where there are none. */
export function forwardData(data: readonly Datum[]): Datum[] {
  return data.map((datum, index) => {
    const targetTokens = targetsOf(datum, index);
    const { weights } = datum.lossFnInputs as { weights?: TensorData };
    return withInputs(datum, { targetTokens, weights: weights ?? zeros(targetTokens.shape) });
  });
}

/** The data for the backward pass: `cross_entropy` is -sum(weights * logprobs), so the weights are -gradient. */
export function backwardData(data: readonly Datum[], gradients: readonly Float64Array[]): Datum[] {
  return data.map((datum, index) => {
    const targetTokens = targetsOf(datum, index);
    const gradient = gradients[index]!;
    const weights = new Float32Array(gradient.length);
    // 0 - x and not -x, which would send -0 for all that does not count.
    for (let i = 0; i < weights.length; i++) weights[i] = 0 - gradient[i]!;
    const position = firstNonFinite(weights);
    if (position >= 0) {
      throw new TinkerError(
        `The gradient with respect to data[${index}].logprobs is ${gradient[position]} at position ${position}, ` +
          "which is too large for a 32-bit float.",
      );
    }
    return withInputs(datum, {
      targetTokens,
      weights: TensorData.sparse(
        new TensorData({ dtype: "float32", data: weights, shape: targetTokens.shape }),
      ),
    });
  });
}

/** The logprobs of a forward pass as variables, each in the shape of its targets. */
export function logprobVariables(data: readonly Datum[], output: ForwardBackwardOutput): Tensor[] {
  if (output.lossFnOutputs.length !== data.length) {
    throw new TinkerError(
      `The forward pass returned ${output.lossFnOutputs.length} records for ${data.length} datums.`,
    );
  }
  return data.map((datum, index) => {
    const logprobs = output.lossFnOutputs[index]!["logprobs"];
    const { shape } = targetsOf(datum, index);
    if (logprobs === undefined)
      throw new TinkerError(`The forward pass returned no logprobs for data[${index}].`);
    const values = logprobs.toDense().data;
    if (values.length !== shape.reduce((product, size) => product * size, 1)) {
      throw new TinkerError(
        `The forward pass answered logprobs of shape [${logprobs.shape.join(", ")}] for data[${index}], ` +
          `whose targetTokens have the shape [${shape.join(", ")}].`,
      );
    }
    return new Tensor(values instanceof Float32Array ? values : new Float64Array(values), shape, {
      requiresGradient: true,
      label: `data[${index}].logprobs`,
    });
  });
}

/** The result of the backward pass with the user's loss and metrics; the server's own loss moves aside. */
export function mergeCustomLoss(output: ForwardBackwardOutput, evaluated: EvaluatedLoss): CustomLossResult {
  const { "loss:sum": surrogate, ...others } = output.metrics;
  return {
    ...output,
    metrics: {
      ...others,
      ...evaluated.metrics,
      "loss:sum": evaluated.loss,
      ...(surrogate === undefined ? {} : { "surrogate_loss:sum": surrogate }),
    },
    ...(evaluated.regularizers === undefined ? {} : { regularizers: evaluated.regularizers }),
  };
}

function targetsOf(datum: Datum, index: number): TensorData {
  const targets = datum.lossFnInputs["targetTokens"];
  if (targets !== undefined) return targets;
  const field = `data[${index}].lossFnInputs.targetTokens`;
  throw new ValidationError(field, `${field} is missing: the logprobs are those of the target tokens`);
}

function withInputs(datum: Datum, lossFnInputs: Readonly<Record<string, TensorData>>): Datum {
  const { modelInput, modelInputSpans, lossFnInputSpans } = datum;
  return Datum.received({ modelInput, lossFnInputs, modelInputSpans, lossFnInputSpans });
}

function zeros(shape: readonly number[]): TensorData {
  const size = shape.reduce((product, each) => product * each, 1);
  return TensorData.sparse(new TensorData({ dtype: "float32", data: new Float32Array(size), shape }));
}
