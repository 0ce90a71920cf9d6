import type { SamplingClient, TrainingClient } from "../../clients/index.js";
import { type EvaluateOptions, evaluate } from "./evaluate.js";

/** Where training stands when it is measured. */
export interface EvaluationContext {
  /** Samples from the weights as they are now. */
  readonly sampler: SamplingClient;
  readonly training: TrainingClient;
  /** Steps done before this measurement. */
  readonly step: number;
  /** Where the run is kept. */
  readonly folder?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Something measured during training. */
export interface Evaluator {
  readonly name: string;
  /** The metrics, by the names they are logged under. */
  evaluate(context: EvaluationContext): Promise<Readonly<Record<string, number>>>;
  /** Gives back what measuring took. Called when a run that has it is over, however it ended; it may be used again. */
  close?(): void | Promise<void>;
}

/** What `evaluate` takes, but for the sampler, which training gives, and the folder. */
export type TaskEvaluatorOptions = Omit<EvaluateOptions, "sampler" | "folder" | "settings" | "signal">;

/** Tasks that are graded during training, as `eval/NAME/score` and the like. */
export function taskEvaluator(options: TaskEvaluatorOptions): Evaluator {
  const { name = "tasks" } = options;
  return {
    name,
    evaluate: async ({ sampler, signal }) => {
      const result = await evaluate({ ...options, sampler, signal });
      const { score, standardError, numCorrect, numExamples, numErrors, numTruncated, passAtK } = result;
      const metrics = {
        score,
        ...(standardError !== undefined && { standard_error: standardError }),
        num_correct: numCorrect,
        num_examples: numExamples,
        num_errors: numErrors,
        num_truncated: numTruncated,
        ...Object.fromEntries(Object.entries(passAtK).map(([k, rate]) => [`pass@${k}`, rate])),
        ...result.metrics,
      };
      return Object.fromEntries(
        Object.entries(metrics).map(([key, value]) => [`eval/${name}/${key}`, value]),
      );
    },
  };
}
