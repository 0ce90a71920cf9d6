import type { SamplingClient, TrainingClient } from "../../clients/index.js";

/** Where training stands when it is measured. */
export interface EvaluationContext {
  /** Samples from the weights as they are now. */
  readonly sampler: SamplingClient;
  readonly training: TrainingClient;
  /** Steps done before this measurement. */
  readonly step: number;
  readonly signal?: AbortSignal | undefined;
}

/** Something measured during training. */
export interface Evaluator {
  readonly name: string;
  /** The metrics, by the names they are logged under. */
  evaluate(context: EvaluationContext): Promise<Readonly<Record<string, number>>>;
}
