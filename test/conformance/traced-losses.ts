/** Losses of `tinkerts/autograd`, with values to compute them at: each operation that can be traced is in one of them. */
import type { PerDatumLossFn } from "../../src/index.js";
import * as a from "../../src/training/autograd/index.js";

interface TracedLoss {
  readonly name: string;
  readonly lossFn: PerDatumLossFn;
  readonly inputs: Readonly<Record<string, 0 | 1 | 2>>;
  /** By input, the logprobs first. */
  readonly values: Readonly<
    Record<string, { readonly data: Float64Array; readonly shape: readonly number[] }>
  >;
}

const vector = (...data: number[]) => ({ data: Float64Array.from(data), shape: [data.length] });
const matrix = (...data: number[]) => ({ data: Float64Array.from(data), shape: [data.length / 3, 3] });
const scalar = (value: number) => ({ data: Float64Array.of(value), shape: [] });

const VECTORS = {
  logprobs: vector(-0.3, -1.7, -0.06, -2.4, -0.9, -1.1),
  mask: vector(0, 1, 1, 0, 1, 1),
  advantages: vector(0.5, -1, 0.25, 2, 1, -0.75),
  samplingLogprobs: vector(-0.4, -1.5, -0.2, -2.3, -0.8, -0.7),
};
const MATRICES = {
  logprobs: matrix(-0.3, -1.6, -2.9, -0.9, -1.2, -1.4, -3.1, -0.2, -2.2),
  teacher: matrix(-0.5, -1.1, -2.5, -0.8, -1.3, -1.5, -2.1, -0.4, -1.2),
};

/** A loss of one vector made by an operation, in which no gradient is lost to a symmetry. */
const ofVector = (name: string, run: (x: a.Tensor, mask: a.Tensor, q: a.Tensor) => a.Tensor): TracedLoss => ({
  name,
  inputs: { mask: 1, samplingLogprobs: 1 },
  values: { logprobs: VECTORS.logprobs, mask: VECTORS.mask, samplingLogprobs: VECTORS.samplingLogprobs },
  lossFn: (logprobs, { mask, samplingLogprobs }) => {
    const value = run(logprobs, mask!, samplingLogprobs!);
    const loss = a.add(a.sum(a.mul(value, a.exp(value))), a.mul(0.1, a.sum(logprobs)));
    return { loss, metrics: { "custom/sum:mean": a.sum(value) } };
  },
});

const OPERATIONS: Readonly<Record<string, (x: a.Tensor, mask: a.Tensor, q: a.Tensor) => a.Tensor>> = {
  arithmetic: (x, mask, q) => a.div(a.sub(a.add(x, 1), a.mul(q, mask)), a.sub(2, x)),
  powers: (x) => a.add(a.pow(x, 2), a.pow(2, x)),
  negative: (x) => a.neg(x),
  "minimum of tensors": (x, _, q) => a.minimum(x, q),
  "minimum with a number": (x) => a.minimum(x, -1),
  "maximum with a number first": (x) => a.maximum(-1, x),
  exponentials: (x) => a.add(a.exp(x), a.log(a.neg(x))),
  sigmoids: (x) => a.add(a.sigmoid(x), a.add(a.logSigmoid(x), a.softplus(x))),
  roots: (x) => a.mul(a.sqrt(a.neg(x)), a.tanh(a.abs(x))),
  clamps: (x) => a.add(a.clamp(x, { min: -1 }), a.clamp(x, { min: -2, max: -0.1 })),
  "a clamp without bounds": (x) => a.clamp(x, {}),
  "a clamp to infinity": (x) => a.clamp(x, { min: Number.NEGATIVE_INFINITY, max: -0.5 }),
  comparisons: (x, _, q) =>
    a.mul(x, a.add(a.add(a.greater(x, q), a.less(x, -1)), a.add(a.greaterEqual(x, -1), a.lessEqual(-1, x)))),
  equality: (x, mask) => a.mul(x, a.add(a.equal(mask, 1), a.notEqual(mask, 0))),
  "where of a mask": (x, mask) => a.where(mask, x, 0),
  "where of a comparison": (x, _, q) => a.where(a.greater(x, q), x, q),
  "where of numbers": (x) => a.mul(x, a.where(a.greater(x, -1), 1, 0)),
  "mean of a comparison": (x) => a.mul(x, a.mean(a.greater(x, -1))),
  "stopped gradients": (x) => a.mul(x, a.stopGradient(a.exp(x))),
  sums: (x) => a.add(x, a.sum(x, { axis: 0, keepDims: true })),
  "sums of all": (x) => a.add(x, a.sum(x, { keepDims: true })),
  means: (x) => a.add(a.sub(x, a.mean(x)), a.mean(x, { axis: [-1], keepDims: true })),
  "log-sum-exp of all": (x) => a.sub(x, a.logSumExp(x)),
  "log-sum-exp of all, kept": (x) => a.sub(x, a.logSumExp(x, { keepDims: true })),
  "log-sum-exp along": (x) => a.sub(x, a.logSumExp(x, { axis: -1 })),
  softmax: (x) => a.softmax(x),
  "cumulative sums": (x) => a.cumulativeSum(x),
  slices: (x) => a.sub(a.slice(x, 1), a.slice(x, 0, -1)),
  "slices from the back": (x) => a.slice(a.reshape(x, [2, 3]), 1, 3, { axis: -1 }),
  concat: (x, mask) => a.concat([x, mask, x]),
  "stack with a number": (x) => a.stack([a.sum(x), 0.5, a.mean(x)]),
  gather: (x, mask) => a.gather(x, mask),
  matmul: (x) => a.matmul(a.reshape(x, [2, 3]), a.transpose(a.reshape(x, [2, 3]))),
};

/** The losses that the conformance suite uploads. */
export const TRACED_LOSSES: readonly TracedLoss[] = [
  ...Object.entries(OPERATIONS).map(([name, run]) => ofVector(name, run)),
  {
    name: "PPO",
    inputs: { advantages: 1, samplingLogprobs: 1, mask: 1 },
    values: {
      logprobs: VECTORS.logprobs,
      advantages: VECTORS.advantages,
      samplingLogprobs: VECTORS.samplingLogprobs,
      mask: VECTORS.mask,
    },
    lossFn: (logprobs, { advantages, samplingLogprobs, mask }) => {
      const ratio = a.exp(a.sub(logprobs, samplingLogprobs!));
      const clipped = a.clamp(ratio, { min: 0.8, max: 1.2 });
      const objective = a.minimum(a.mul(ratio, advantages!), a.mul(clipped, advantages!));
      return {
        loss: a.neg(a.div(a.sum(a.where(mask!, objective, 0)), a.maximum(a.sum(mask!), 1))),
        metrics: { "custom/ratio:mean": a.mean(ratio), "custom/tokens:sum": a.sum(mask!) },
      };
    },
  },
  {
    name: "distillation over likeliest tokens",
    inputs: { logprobs: 2, teacher: 2, scale: 0 },
    values: { ...MATRICES, scale: scalar(0.7) },
    lossFn: (logprobs, { teacher, scale }) => {
      const normal = (x: a.Tensor) => a.sub(x, a.logSumExp(x, { axis: -1, keepDims: true }));
      const [student, reference] = [normal(logprobs), normal(teacher!)];
      const kl = a.sum(a.mul(a.exp(student), a.sub(student, reference)), { axis: 1 });
      return { loss: a.mul(scale!, a.sum(kl)), metrics: { "custom/kl:mean": a.mean(kl) } };
    },
  },
];
