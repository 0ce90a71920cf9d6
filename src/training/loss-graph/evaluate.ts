import { ValidationError } from "../../errors.js";
import { backward, Tensor } from "../autograd/index.js";
import type { WorkMeter } from "./operation.js";
import type { LossProgram, ProgramInput } from "./program.js";

/** A loss of one datum at its logprobs. */
export interface EvaluatedDatum {
  readonly loss: number;
  /** d loss / d logprobs. */
  readonly gradient: Float64Array;
  readonly metrics: ReadonlyMap<string, number>;
}

/** Runs a loss on one datum, forward and backward; `inputs` are those after the logprobs, in the program's order. */
export function evaluateProgram(
  program: LossProgram,
  logprobs: { readonly values: Float32Array | Float64Array; readonly shape: readonly number[] },
  inputs: readonly ProgramInput[],
  meter: WorkMeter,
): EvaluatedDatum {
  const variable = new Tensor(logprobs.values, logprobs.shape, { requiresGradient: true, label: "logprobs" });
  const { loss, metrics } = program.run([{ tensor: variable, dtype: "float32" }, ...inputs], meter);
  if (!loss.requiresGradient) throw new ValidationError("graph", "the loss does not depend on logprobs");
  const gradients = backward(loss);
  if (!gradients.has(variable)) throw new ValidationError("graph", "the loss does not depend on logprobs");
  return { loss: loss.item(), gradient: gradients.of(variable), metrics };
}

/** Adds up the metrics of data: sums for `:sum`, means over the data for `:mean`. */
export function combineDatumMetrics(all: readonly ReadonlyMap<string, number>[]): Record<string, number> {
  const totals = new Map<string, number>();
  for (const metrics of all)
    for (const [name, value] of metrics) totals.set(name, (totals.get(name) ?? 0) + value);
  return Object.fromEntries(
    [...totals].map(([name, total]) => [name, name.endsWith(":mean") ? total / all.length : total]),
  );
}

/**
 * Elements that a loss may read and make for one datum, in the beginning and for each of its targets: what it makes is in
 * memory until the gradient is known.
 */
const DATUM_ELEMENTS = 2 ** 22;
const DATUM_ELEMENTS_PER_TARGET = 2 ** 10;
const MAX_DATUM_ELEMENTS = 2 ** 26;
/** Limit for all data of a pass together. A model does far more work for a target. */
const PASS_ELEMENTS = 2 ** 24;
const PASS_ELEMENTS_PER_TARGET = 2 ** 12;

/** Bounds the work of a loss over the data of a pass, before it is done. */
export class PassMeter implements WorkMeter {
  #leftOfPass: number;
  #leftOfDatum = 0;

  constructor(targets: number) {
    this.#leftOfPass = PASS_ELEMENTS + PASS_ELEMENTS_PER_TARGET * targets;
  }

  startDatum(targets: number): void {
    this.#leftOfDatum = Math.min(DATUM_ELEMENTS + DATUM_ELEMENTS_PER_TARGET * targets, MAX_DATUM_ELEMENTS);
  }

  charge(elements: number): void {
    this.#leftOfDatum -= elements;
    this.#leftOfPass -= elements;
    if (!(this.#leftOfDatum >= 0))
      throw new ValidationError("graph", "the loss does too much work for a datum of this size");
    if (!(this.#leftOfPass >= 0))
      throw new ValidationError("graph", "the loss does too much work for a batch of this size");
  }
}
