import type { SamplingClient, TrainingClient } from "../../clients/index.js";
import type { Evaluator } from "../evaluation/index.js";
import type { BestKeeper } from "./best-weights.js";

/** Measures weights by the trainer itself. It sends all its requests before it returns. */
export type MeasureWeights<State = unknown> = (
  training: TrainingClient,
  signal: AbortSignal,
  /** What the step before has kept. */
  state: State | undefined,
) => Promise<Readonly<Record<string, number>>>;

/** What is measured between steps, and when. */
export interface EvaluationPlan<State> {
  readonly every: number;
  readonly steps: number;
  /** Held-out data, where there are any. */
  readonly heldOut: MeasureWeights<State> | undefined;
  readonly evaluators: readonly Evaluator[];
  readonly best: BestKeeper | undefined;
  /** Where the run is kept. */
  readonly folder: string | undefined;
  /** How long weights are kept that were saved to be compared. */
  readonly ttlSeconds: number | undefined;
}

/** Whether the weights after so many steps are measured: the first ones, every so often, the last ones. */
export function isEvaluated<State>(
  batch: number,
  { every, steps, heldOut, evaluators }: EvaluationPlan<State>,
): boolean {
  if (every === 0 || (heldOut === undefined && evaluators.length === 0)) return false;
  return batch % every === 0 || batch === steps;
}

/**
 * Measures the weights after the requests made so far. All that concerns the weights is sent before this returns, so
 * that training can go on while the measuring is under way.
 */
export function startEvaluation<State>(
  training: TrainingClient,
  { batch, state }: { readonly batch: number; readonly state: State | undefined },
  plan: EvaluationPlan<State>,
  signal: AbortSignal,
): Promise<Record<string, number>> {
  const { heldOut, evaluators, best, folder } = plan;
  const startedMs = performance.now();
  const pass = heldOut?.(training, signal, state);
  const saved = best && saveForComparison(training, batch, plan, signal);
  const context = { training, step: batch, folder, signal };
  const runEvaluators = async (sampler: SamplingClient): Promise<Record<string, number>> => {
    const results = await Promise.all(evaluators.map((each) => each.evaluate({ ...context, sampler })));
    return Object.assign({}, ...results);
  };
  const sampler =
    evaluators.length === 0
      ? undefined
      : (saved?.then((path) => training.createSamplingClient(path, { signal })) ??
        training.saveWeightsAndGetSamplingClient({ signal }));
  const evaluate = async () => {
    const [measured, others, path] = await Promise.all([pass, sampler?.then(runEvaluators), saved]);
    const metrics = { ...measured, ...others };
    if (best !== undefined && path !== undefined) await best.consider(batch, path, metrics);
    return { ...metrics, "time/evals": (performance.now() - startedMs) / 1000 };
  };
  return evaluate();
}

async function saveForComparison<State>(
  training: TrainingClient,
  batch: number,
  { ttlSeconds }: EvaluationPlan<State>,
  signal: AbortSignal,
): Promise<string> {
  const name = `best-${String(batch).padStart(6, "0")}`;
  const { path } = await training.saveWeightsForSampler(name, { signal, ttlSeconds });
  return path;
}
