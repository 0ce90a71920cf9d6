import type { SamplingClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import { inSpan } from "../../session/index.js";
import type { Evaluator } from "../evaluation/index.js";
import type { BestKeeper } from "./best-weights.js";

/** Evaluates weights with the trainer itself. It sends all its requests before it returns. */
export type MeasureWeights<State = unknown> = (
  training: TrainingClient,
  signal: AbortSignal,
  /** State that the previous step returned. */
  state: State | undefined,
) => Promise<Readonly<Record<string, number>>>;

/** Evaluations between steps, and their schedule. */
export interface EvaluationPlan<State> {
  readonly every: number;
  readonly steps: number;
  /** Held-out data, if there are any. */
  readonly heldOut: MeasureWeights<State> | undefined;
  readonly evaluators: readonly Evaluator[];
  readonly best: BestKeeper | undefined;
  readonly service: ServiceClient;
  /** Folder of the run. */
  readonly folder: string | undefined;
  /** How long weights are kept that were saved for comparison. */
  readonly ttlSeconds: number | undefined;
}

/** Whether to evaluate after this step: after the first, at regular intervals, and after the last. */
export function isEvaluated<State>(
  batch: number,
  { every, steps, heldOut, evaluators }: EvaluationPlan<State>,
): boolean {
  if (every === 0 || (heldOut === undefined && evaluators.length === 0)) return false;
  return batch % every === 0 || batch === steps;
}

/**
 * Evaluates the weights after the requests made so far. All requests that need these weights are sent before this
 * returns, so that training can continue meanwhile.
 */
export function startEvaluation<State>(
  training: TrainingClient,
  { batch, state }: { readonly batch: number; readonly state: State | undefined },
  plan: EvaluationPlan<State>,
  signal: AbortSignal,
): Promise<Record<string, number>> {
  const { heldOut, evaluators, best, folder, service } = plan;
  const startedMs = performance.now();
  const pass = heldOut?.(training, signal, state);
  const saved = best && saveForComparison(training, batch, plan, signal);
  const context = { training, service, step: batch, folder, signal };
  const runEvaluators = async (sampler: SamplingClient): Promise<Record<string, number>> => {
    const results = await Promise.all(evaluators.map((each) => each.evaluate({ ...context, sampler })));
    return Object.assign({}, ...results);
  };
  // Async, because a client of a run that has failed throws: nobody would await the pass then.
  const openSampler = async () =>
    saved === undefined
      ? training.saveWeightsAndGetSamplingClient({ signal })
      : training.createSamplingClient(await saved, { signal });
  const sampler = evaluators.length === 0 ? undefined : openSampler();
  const evaluate = async () => {
    const [measured, others, path] = await Promise.all([pass, sampler?.then(runEvaluators), saved]);
    const metrics = { ...measured, ...others };
    if (best !== undefined && path !== undefined) await best.consider(batch, path, metrics);
    return { ...metrics, "time/evals": (performance.now() - startedMs) / 1000 };
  };
  return inSpan("evaluate", { category: "evaluate", attributes: { "tinkerts.step": batch } }, evaluate);
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
