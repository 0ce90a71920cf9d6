import type { SamplingClient, ServiceClient, TrainingClient } from "../../clients/index.js";
import * as f from "../../wire/fields/index.js";
import { checkPassAtK, EVALUATE_OPTIONS, type EvaluateOptions, evaluate } from "./evaluate.js";

/** State of training at an evaluation. */
export interface EvaluationContext {
  /** Samples from the current weights. */
  readonly sampler: SamplingClient;
  readonly training: TrainingClient;
  /** The service that the run trains on. */
  readonly service?: ServiceClient | undefined;
  /** Steps trained before this evaluation. */
  readonly step: number;
  /** Folder of the run. */
  readonly folder?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A measurement made during training. */
export interface Evaluator {
  readonly name: string;
  /** Measures, and returns metrics by the names under which they are logged. */
  evaluate(context: EvaluationContext): Promise<Readonly<Record<string, number>>>;
  /** Releases the evaluator's resources. Called when a run that uses it ends, even with an error; it may be used again. */
  close?(): void | Promise<void>;
}

/** Options of `evaluate` without the sampler and the folder, which the training run provides. */
export type TaskEvaluatorOptions = Omit<EvaluateOptions, "sampler" | "folder" | "settings" | "signal">;

const {
  sampler: _sampler,
  folder: _folder,
  settings: _settings,
  signal: _signal,
  ...FIELDS
} = EVALUATE_OPTIONS.fields;
/** The option table of `taskEvaluator`. */
export const TASK_EVALUATOR_OPTIONS = f.optionTable(
  FIELDS satisfies f.OptionsOf<TaskEvaluatorOptions>,
  checkPassAtK,
);

/** Evaluates tasks during training and logs the results as `eval/NAME/score` and similar metrics. */
export function taskEvaluator(options: TaskEvaluatorOptions): Evaluator {
  const { name } = TASK_EVALUATOR_OPTIONS.check(options, "taskEvaluator");
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
