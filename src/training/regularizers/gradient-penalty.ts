import { number, optionTable, withDefault } from "../../wire/index.js";
import { fromGradients, type Tensor, variable } from "../autograd/index.js";
import { norm } from "./norm.js";
import { namedTerm, type Term, type TermInput } from "./term.js";

/** The largest shift of a logprob, small for the curvature and large for the rounding of 32-bit losses. */
const LARGEST_SHIFT = 1e-3;

const PENALTY_OPTIONS = optionTable({ target: withDefault(number, 0) });

/**
 * `mean over datums of (|g| - target)^2`, g being the gradient of the base loss by the datum's logprobs. Its own
 * gradient needs second derivatives, taken as a central difference of gradients along one direction: the base loss is
 * evaluated twice more, and may be written in any of the three ways.
 */
export function gradientPenalty(options: { readonly target?: number | undefined } = {}): Term {
  const { target } = PENALTY_OPTIONS.check(options, "gradientPenalty");
  return namedTerm("gradientPenalty", async (input) => {
    const { gradients } = input.base;
    const datums = gradients.length;
    const norms = gradients.map((gradient) => norm([gradient]));
    const value = norms.reduce((total, each) => total + (each - target) ** 2, 0) / datums;
    // d value / d logprobs = H v, where H holds the second derivatives of the base loss.
    const direction = gradients.map((gradient, index) => {
      const length = norms[index]!;
      const factor = length === 0 ? 0 : (2 * (length - target)) / (datums * length);
      return gradient.map((each) => each * factor);
    });
    return fromGradients(value, input.logprobs, await alongDirection(input, direction), "gradientPenalty");
  });
}

/** (gradient(x + h v) - gradient(x - h v)) / 2h */
async function alongDirection(input: TermInput, direction: readonly Float64Array[]): Promise<Float64Array[]> {
  let largest = 0;
  for (const each of direction) for (const value of each) largest = Math.max(largest, Math.abs(value));
  if (largest === 0) return direction.map((each) => new Float64Array(each.length));
  const step = LARGEST_SHIFT / largest;
  const gradientsAt = async (signedStep: number) => {
    const shifted = input.logprobs.map((logprobs, index) => shift(logprobs, direction[index]!, signedStep));
    return (await input.evaluateBase(shifted)).gradients;
  };
  const ahead = await gradientsAt(step);
  const behind = await gradientsAt(-step);
  return ahead.map((gradient, index) =>
    gradient.map((each, position) => (each - behind[index]![position]!) / (2 * step)),
  );
}

function shift(logprobs: Tensor, direction: Float64Array, step: number): Tensor {
  const data = logprobs.data.map((each, position) => each + step * direction[position]!);
  return variable(
    { data, shape: logprobs.shape },
    logprobs.label === undefined ? {} : { label: logprobs.label },
  );
}
