import { exp, greater, log, logSumExp, mul, neg, sub, sum, where } from "../../training/autograd/index.js";
import { type CustomLossFn, withGradients } from "../../training/custom-loss.js";
import type { PerDatumLossFn } from "../../training/tracing/trace-loss.js";
import { logSoftmax } from "./soft-targets.js";

/**
 * The reverse KL of a student to its teacher over the teacher's candidates, for `forwardBackwardCustom`: the sum over
 * positions of `Σ p · (log p - log q)`, where `p` is the student's distribution over the candidates and `q` the
 * teacher's, which the `weights` of the soft targets hold. Candidates of weight 0 are ignored.
 */
export const reverseKlLoss: CustomLossFn = withGradients((data, logprobs) => {
  let loss = 0;
  let entropy = 0;
  let positions = 0;
  const gradients = data.map(({ lossFnInputs }, index) => {
    const { data: weights, shape } = lossFnInputs["weights"]!.toDense();
    const [rows = 0, columns = 1] = shape;
    const gradient = new Float64Array(weights.length);
    for (let row = 0; row < rows; row += 1) {
      const student = logprobs[index]!.subarray(row * columns, (row + 1) * columns);
      const teacher = (weights as Float32Array).subarray(row * columns, (row + 1) * columns);
      const kl = rowDivergence(student, teacher, gradient.subarray(row * columns, (row + 1) * columns));
      if (kl === undefined) continue;
      loss += kl.divergence;
      entropy += kl.entropy;
      positions += 1;
    }
    return gradient;
  });
  return {
    loss,
    gradients,
    metrics: measured({ loss, entropy, positions }),
  };
});

/** Reverse KL of one datum, in a form that a server can run. */
export const reverseKlOfDatum: PerDatumLossFn<"weights"> = (logprobs, { weights }) => {
  const isCandidate = greater(weights, 0);
  // Far below every logprob, so that other targets have no part in the sum.
  const candidates = where(isCandidate, logprobs, -1e9);
  const normalized = where(
    isCandidate,
    sub(candidates, logSumExp(candidates, { axis: -1, keepDims: true })),
    0,
  );
  const student = where(isCandidate, exp(normalized), 0);
  const difference = sub(normalized, log(where(isCandidate, weights, 1)));
  const divergence = sum(mul(student, difference));
  return {
    loss: divergence,
    metrics: {
      "custom/reverse_kl:sum": divergence,
      "custom/entropy:sum": neg(sum(mul(student, normalized))),
      "custom/positions:sum": sum(greater(sum(isCandidate, { axis: -1 }), 0)),
    },
  };
};

/** The metrics of a pass with that loss, under the names of the loss above. */
export function reverseKlMetrics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  const {
    "custom/reverse_kl:sum": loss = 0,
    "custom/entropy:sum": entropy = 0,
    "custom/positions:sum": positions = 0,
    ...others
  } = metrics;
  return { ...others, ...measured({ loss, entropy, positions }) };
}

function measured({ loss, entropy, positions }: Record<"loss" | "entropy" | "positions", number>) {
  return {
    "sdft/reverse_kl_loss": loss,
    ...(positions > 0 && {
      "sdft/reverse_kl_mean": loss / positions,
      "sdft/student_entropy_mean": entropy / positions,
    }),
    "sdft/reverse_kl_positions": positions,
  };
}

/**
 * Reverse KL at one position. Writes its gradient with respect to the student's logprobs into `gradient`; undefined
 * without candidates.
 */
function rowDivergence(
  student: Float32Array,
  teacher: Float32Array,
  gradient: Float64Array,
): { divergence: number; entropy: number } | undefined {
  const slots = [...teacher.keys()].filter((slot) => teacher[slot]! > 0);
  if (slots.length === 0) return undefined;
  const logprobs = logSoftmax(slots.map((slot) => student[slot]!));
  const probabilities = logprobs.map(Math.exp);
  const differences = slots.map((slot, place) => logprobs[place]! - Math.log(teacher[slot]!));
  const divergence = probabilities.reduce((sum, each, place) => sum + each * differences[place]!, 0);
  // The terms from the derivative of log p cancel, since p sums to 1.
  for (const [place, slot] of slots.entries())
    gradient[slot] = probabilities[place]! * (differences[place]! - divergence);
  const entropy = -probabilities.reduce((sum, each, place) => sum + each * logprobs[place]!, 0);
  return { divergence, entropy };
}
