/** Keeps a training run going over failures of the server, the session or the network. */
export { RunGaveUpError } from "./run-gave-up-error.js";
export { superviseRun } from "./supervise-run.js";
export type {
  CheckpointPlan,
  FailureReason,
  MetricValue,
  RecoveryLog,
  RecoveryPolicy,
  RunCheckpoint,
  RunEvent,
  RunMetrics,
  StepContext,
  StepMetrics,
  SupervisedRunResult,
  SupervisedService,
  SupervisedTraining,
  SuperviseRunOptions,
} from "./types.js";
