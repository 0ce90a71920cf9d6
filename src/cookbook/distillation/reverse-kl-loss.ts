import { type CustomLossFn, withGradients } from "../../training/custom-loss.js";
import { logSoftmax } from "./soft-targets.js";

/**
 * The reverse KL of a student to its teacher over the teacher's candidates, for `forwardBackwardCustom`: the sum over
 * positions of `Σ p · (log p - log q)`, where `p` is the student's distribution over the candidates and `q`, which stands
 * in the `weights` of the soft targets, the teacher's. Candidates of weight 0 are none.
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
    metrics: {
      "sdft/reverse_kl_loss": loss,
      ...(positions > 0 && {
        "sdft/reverse_kl_mean": loss / positions,
        "sdft/student_entropy_mean": entropy / positions,
      }),
      "sdft/reverse_kl_positions": positions,
    },
  };
});

/** Of one position; its gradient by the student's logprobs is written into `gradient`. Undefined without candidates. */
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
  // What the logarithms of p add to the derivative sums up to 0, since p sums up to 1.
  for (const [place, slot] of slots.entries())
    gradient[slot] = probabilities[place]! * (differences[place]! - divergence);
  const entropy = -probabilities.reduce((sum, each, place) => sum + each * logprobs[place]!, 0);
  return { divergence, entropy };
}
