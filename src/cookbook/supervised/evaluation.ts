import type { SamplingClient, TrainingClient } from "../../clients/index.js";
import type { RendererTokenizer } from "../../renderers/index.js";
import type { Datum, ForwardBackwardOutput } from "../../wire/index.js";
import type { Evaluator } from "../evaluation/index.js";
import type { BestKeeper } from "./best-weights.js";
import { bitsPerByte, meanNll, type ScoredTokens } from "./likelihood.js";

/** What is measured between steps, and when. */
export interface EvaluationPlan {
  readonly every: number;
  readonly steps: number;
  readonly test: readonly Datum[];
  readonly tokenizer: RendererTokenizer;
  readonly evaluators: readonly Evaluator[];
  readonly best: BestKeeper | undefined;
  /** How long weights are kept that were saved to be compared. */
  readonly ttlSeconds: number | undefined;
}

/** Whether the weights after so many steps are measured: the first ones, every so often, the last ones. */
export function isEvaluated(batch: number, { every, steps, test, evaluators }: EvaluationPlan): boolean {
  if (every === 0 || (test.length === 0 && evaluators.length === 0)) return false;
  return batch % every === 0 || batch === steps;
}

/**
 * Measures the weights after the requests made so far. All that concerns the weights is sent before this returns, so
 * that training can go on while the measuring is under way.
 */
export function startEvaluation(
  training: TrainingClient,
  batch: number,
  plan: EvaluationPlan,
  signal: AbortSignal,
): Promise<Record<string, number>> {
  const { test, tokenizer, evaluators, best } = plan;
  const startedMs = performance.now();
  // One pass of the trainer itself: as exact as a sampler's logprobs, and nothing has to be saved for it.
  const pass = test.length === 0 ? undefined : training.forward(test, "cross_entropy", { signal });
  const saved = best && saveForComparison(training, batch, plan, signal);
  const context = { training, step: batch, signal };
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
    const [heldOut, others, path] = await Promise.all([
      pass?.then((output) => heldOutMetrics(test, output, tokenizer)),
      sampler?.then(runEvaluators),
      saved,
    ]);
    const metrics = { ...heldOut, ...others };
    if (best !== undefined && path !== undefined) await best.consider(batch, path, metrics);
    return { ...metrics, "time/evals": (performance.now() - startedMs) / 1000 };
  };
  return evaluate();
}

async function saveForComparison(
  training: TrainingClient,
  batch: number,
  { ttlSeconds }: EvaluationPlan,
  signal: AbortSignal,
): Promise<string> {
  const name = `best-${String(batch).padStart(6, "0")}`;
  const { path } = await training.saveWeightsForSampler(name, { signal, ttlSeconds });
  return path;
}

function heldOutMetrics(test: readonly Datum[], output: ForwardBackwardOutput, tokenizer: RendererTokenizer) {
  const scored = scoredTokens(test, output);
  return { "test/nll": meanNll(scored), "test/bpb": bitsPerByte(scored, tokenizer) };
}

/** The logprobs of a pass beside what was asked for. */
export function scoredTokens(
  data: readonly Datum[],
  { lossFnOutputs }: ForwardBackwardOutput,
): ScoredTokens[] {
  return data.map(({ lossFnInputs }, index) => ({
    logprobs: lossFnOutputs[index]!["logprobs"]!.data,
    weights: lossFnInputs["weights"]!.data,
    targetTokens: lossFnInputs["targetTokens"]!.data,
  }));
}
