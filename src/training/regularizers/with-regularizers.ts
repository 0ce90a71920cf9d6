import { TinkerError, ValidationError } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import { backward, isTensor, type Tensor } from "../autograd/index.js";
import { type CustomLossFn, evaluateCustomLoss } from "../custom-loss.js";
import { norm } from "./norm.js";
import type { RegularizerReport, TermReport } from "./report.js";
import type { Term, TermInput } from "./term.js";

/** A term of a loss with its weight, for `withRegularizers`. */
export interface Regularizer {
  /** Factor of the term; negative to reward what it measures. */
  readonly weight: number;
  /** One of the terms of this module, or a function of your own. */
  readonly term: Term;
  /** The name in metrics and reports; the term's own when absent. */
  readonly name?: string | undefined;
}

const REGULARIZERS = f.list(
  f.message({
    weight: f.number,
    term: f.functionOf<Term>(),
    name: f.optional(f.text),
  } satisfies f.FieldsOf<Regularizer>),
);

/**
 * `base + sum(weight * term)` as one custom loss. What each term did is in the result's `regularizers` and, under
 * `regularizer/<name>/...`, in its metrics.
 */
export function withRegularizers(baseLoss: CustomLossFn, regularizers: readonly Regularizer[]): CustomLossFn {
  const named = nameAll(regularizers);
  return async (data, logprobs) => {
    const base = await evaluateCustomLoss(baseLoss, data, logprobs);
    const input: TermInput = {
      data,
      logprobs,
      base,
      evaluateBase: (others) => evaluateCustomLoss(baseLoss, data, others),
    };
    const gradients = base.gradients.map((each) => new Float64Array(each));
    const terms: TermReport[] = [];
    for (const { name, weight, term } of named) {
      const { value, parts } = await evaluateTerm(name, term, input);
      for (const [index, part] of parts.entries()) {
        const into = gradients[index]!;
        for (let i = 0; i < into.length; i++) into[i]! += weight * part[i]!;
      }
      const gradientNorm = Math.abs(weight) * norm(parts);
      terms.push({ name, value, weight, contribution: weight * value, gradientNorm });
    }
    const total = terms.reduce((sum, { contribution }) => sum + contribution, base.loss);
    const report: RegularizerReport = {
      base: { value: base.loss, gradientNorm: norm(base.gradients) },
      terms,
      total,
      gradientNorm: norm(gradients),
    };
    return {
      loss: total,
      gradients,
      metrics: { ...base.metrics, ...reportMetrics(report) },
      regularizers: report,
    };
  };
}

async function evaluateTerm(name: string, term: Term, input: TermInput) {
  try {
    const value: Tensor = await term(input);
    if (!isTensor(value)) {
      throw new ValidationError(
        name,
        `a term must return a Tensor of tinkerts/autograd, got ${typeof value}`,
      );
    }
    const gradients = backward(value);
    return { value: value.item(), parts: input.logprobs.map((each) => gradients.of(each)) };
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw new TinkerError(`Regularizer "${name}": ${error.message}`, { cause: error });
  }
}

function nameAll(regularizers: readonly Regularizer[]): (Regularizer & { name: string })[] {
  const used = new Set<string>();
  return REGULARIZERS.check(regularizers, "regularizers").map(({ weight, term, name }) => {
    const wanted = name ?? (term.name || "term");
    // A colon would be read as the beginning of the metric's suffix.
    const plain = wanted.replaceAll(":", "_");
    let unique = plain;
    for (let count = 1; used.has(unique); count++) unique = `${plain}_${count}`;
    used.add(unique);
    return { weight, term, name: unique };
  });
}

function reportMetrics({ base, terms, total, gradientNorm }: RegularizerReport): Record<string, number> {
  const metrics: Record<string, number> = {
    "base_loss:sum": base.value,
    "base_loss/gradient_norm:mean": base.gradientNorm,
    "regularizer/total:sum": total - base.value,
    "regularized_loss/gradient_norm:mean": gradientNorm,
  };
  for (const term of terms) {
    const prefix = `regularizer/${term.name}`;
    metrics[`${prefix}/value:mean`] = term.value;
    metrics[`${prefix}/weight:mean`] = term.weight;
    metrics[`${prefix}/contribution:sum`] = term.contribution;
    metrics[`${prefix}/gradient_norm:mean`] = term.gradientNorm;
  }
  return metrics;
}
