import type { Clock } from "../../transport/index.js";

/** Training client that `runWithRecovery` needs; a `TrainingClient` fits. */
export interface RecoverableTraining {
  readonly modelId: string;
  saveState(
    name: string,
    options?: { signal?: AbortSignal | undefined; ttlSeconds?: number | undefined },
  ): PromiseLike<{ path: string }>;
  saveWeightsForSampler(
    name: string,
    options?: { signal?: AbortSignal | undefined; ttlSeconds?: number | undefined },
  ): PromiseLike<{ path: string }>;
}

/** Service client that `runWithRecovery` needs; a `ServiceClient` fits. */
export interface RecoverableService<T> {
  createTrainingClientFromStateWithOptimizer(
    path: string,
    options?: { signal?: AbortSignal | undefined },
  ): Promise<T>;
  createRestClient(): {
    getTrainingRun(
      trainingRunId: string,
      options?: { signal?: AbortSignal | undefined; maxRetries?: number | undefined },
    ): PromiseLike<{ readonly corrupted?: boolean | undefined }>;
  };
  close(status?: "success" | "errored" | "interrupted", detail?: string): Promise<void>;
  /** Calls back once when the heartbeat learns that the session is over; the returned function unsubscribes. */
  onSessionLost?(callback: () => void): () => void;
}

/** A checkpoint of a run: after `batch` steps the weights and the optimizer were saved at `statePath`. */
export interface RunCheckpoint {
  readonly name: string;
  /** Steps done, which is also the index of the step that comes next. */
  readonly batch: number;
  readonly statePath: string;
  readonly samplerPath?: string | undefined;
  readonly final?: boolean | undefined;
  /** It only bridges the time to the next one, and may be deleted then. */
  readonly rolling?: boolean | undefined;
}

/** How a checkpoint is saved and how long it is kept. */
export interface CheckpointPlan {
  /** Whether they are also saved for sampling. */
  readonly sampler?: boolean | undefined;
  /** How long they are kept; for ever when absent. */
  readonly ttlSeconds?: number | undefined;
  readonly rolling?: boolean | undefined;
}

/** One value of a metric, as JSON has it. */
export type MetricValue = number | string | boolean | null;
/** The metrics of a step by name, once all of them are known. */
export type RunMetrics = Readonly<Record<string, MetricValue>>;

/** Metrics of a step; a pending value is awaited after the next step has started. */
export type StepMetrics = Readonly<
  Record<string, MetricValue | undefined | PromiseLike<MetricValue | undefined>>
>;

/** Log of a run's metrics and checkpoints; `RunLog` keeps it on disk. */
export interface RecoveryLog {
  /** Checkpoints that a run can resume from, oldest first. */
  resumableCheckpoints(): readonly RunCheckpoint[];
  /** The last step whose metrics were written. */
  readonly lastMetricsStep: number | undefined;
  /** Resolves once the record will survive a crash. */
  logMetrics(metrics: RunMetrics, step: number): Promise<void>;
  /** Resolves once the record will survive a crash. */
  logCheckpoint(checkpoint: RunCheckpoint): Promise<void>;
}

/** Why a step failed; all but `fatal` are worth a restore. */
export type FailureReason =
  /** The server says that the run is corrupted. */
  | "corrupted"
  /** The server no longer knows the session or the model. */
  | "lost"
  /** No answer for longer than requests are retried. */
  | "unreachable"
  /** The server failed to do what was asked. */
  | "server"
  /** Not the service's doing: the step's own error, a refused argument or credential. */
  | "fatal";

/** How often, how soon and from where a failed run is restored. */
export interface RecoveryPolicy {
  /** How often the run is restored without getting to a new checkpoint; 5. */
  readonly maxAttempts: number;
  /** The wait before the first attempt, doubled for each one after it; 1 s. */
  readonly backoffMs: number;
  /** The longest wait between attempts; 60 s. */
  readonly maxBackoffMs: number;
  /** How often the server is asked whether the run is corrupted; 30 s. */
  readonly checkEveryMs: number;
  /** A server that has not answered those questions for this long counts as gone; 5 minutes. */
  readonly unreachableAfterMs: number;
  /** The checkpoint to restore from: the latest one, or the one of this name. */
  readonly checkpoint: "latest" | (string & {});
  /** Decides over the built-in rule whether a failure is worth a restore; undefined leaves it to the rule. */
  readonly shouldRestore: ((error: unknown) => boolean | undefined) | undefined;
}

/** Event of a run, for `onEvent`. */
export type RunEvent =
  /** A new model was made; nothing is trained yet. */
  | { readonly type: "started"; readonly modelId: string }
  /** A step and every request of it has succeeded. `repeated`: it had been done before a failure. */
  | {
      readonly type: "step";
      readonly step: number;
      readonly metrics: RunMetrics;
      readonly repeated: boolean;
    }
  /** Metrics that `measure` returned after the last step. */
  | { readonly type: "measured"; readonly batch: number; readonly metrics: RunMetrics }
  | { readonly type: "checkpoint"; readonly checkpoint: RunCheckpoint }
  /** `step` is the one that was being worked on. */
  | {
      readonly type: "failed";
      readonly reason: FailureReason;
      readonly error: unknown;
      readonly step: number;
      readonly attempt: number;
    }
  /** Without a checkpoint the run starts again: nothing was trained yet. */
  | {
      readonly type: "restoring";
      readonly attempt: number;
      readonly delayMs: number;
      readonly checkpoint: RunCheckpoint | undefined;
    }
  | {
      readonly type: "restored";
      readonly attempt: number;
      readonly modelId: string;
      readonly checkpoint: RunCheckpoint;
    }
  | { readonly type: "gave_up"; readonly error: unknown; readonly attempts: number }
  /** `pauseSignal` has ended it early. */
  | { readonly type: "paused"; readonly checkpoint: RunCheckpoint }
  | { readonly type: "finished"; readonly checkpoint: RunCheckpoint };

/** Context of a step, without its training client. */
export interface StepContext<S> {
  readonly service: S;
  /** Aborted when the run fails or is stopped; pass it to everything that the step waits for. */
  readonly signal: AbortSignal;
  /** Ends the run before its next step, with the weights it then has. */
  readonly end: () => void;
  /** Adds metrics to this step that arrive later; the next step does not wait for them. */
  readonly addMetrics: (metrics: PromiseLike<StepMetrics>) => void;
}

// biome-ignore lint/suspicious/noConfusingVoidType: a step without metrics returns nothing.
type MaybeMetrics = StepMetrics | void | Promise<StepMetrics | void>;

/** Options of `runWithRecovery`: clients, steps, checkpoints and the recovery policy. */
export interface RunWithRecoveryOptions<S, T> {
  /** Makes a new service client; called again after a failure, as a lost session takes its client with it. */
  readonly service: () => S | Promise<S>;
  /** Makes the training client of a new run. */
  readonly start: (service: S) => Promise<T>;
  /** Makes the training client of a resumed run; by default from the state with its optimizer. */
  readonly restore?: ((service: S, checkpoint: RunCheckpoint) => Promise<T>) | undefined;
  /**
   * Trains step number `step` (from 0) with this `training`, no other one. The same number must mean the same
   * data whenever it is called. It may return before its requests are done.
   */
  readonly step: (training: T, step: number, context: StepContext<S>) => MaybeMetrics;
  /**
   * Looks at the weights after `batch` steps: before each step, and after the last. Its metrics are logged with those of the
   * step that comes next, and after the last step alone. What it need not wait for, training does not wait for either.
   */
  readonly measure?: ((training: T, batch: number, context: StepContext<S>) => MaybeMetrics) | undefined;
  /** Number of steps in the whole run. */
  readonly steps: number;
  /** Steps between checkpoints; 20. */
  readonly checkpointEvery?: number | undefined;
  /** How long the checkpoints before the final one are kept; for ever when absent. */
  readonly checkpointTtlSeconds?: number | undefined;
  /** Decides in place of both, once for each number of steps done, whether and how they are saved. */
  readonly checkpointAt?: ((batch: number) => CheckpointPlan | undefined) | undefined;
  /** With a `RunLog`, the run also survives the end of this process. */
  readonly log?: RecoveryLog | undefined;
  readonly policy?: Partial<RecoveryPolicy> | undefined;
  readonly onEvent?: ((event: RunEvent) => void) | undefined;
  /** Stops the run; what is checkpointed stays, and a later call with the same log continues from there. */
  readonly signal?: AbortSignal | undefined;
  /** Ends the run after the current step, with a checkpoint to resume from. */
  readonly pauseSignal?: AbortSignal | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}

/** Final checkpoint and restores of a run. */
export interface RunWithRecoveryResult {
  /** The final checkpoint, with a state to train on from and sampler weights; the last one, without `final`, of a paused run. */
  readonly checkpoint: RunCheckpoint;
  /** Number of times the run was restored after a failure. */
  readonly restores: number;
}
