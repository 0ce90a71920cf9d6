import { messageOf, ValidationError } from "../../errors.js";
import {
  abortError,
  backOffMs,
  type Clock,
  onAbort,
  systemClock,
  throwIfAborted,
} from "../../transport/index.js";
import { blamesCheckpoint, classify } from "./classify.js";
import { MemoryLog } from "./memory-log.js";
import { type FilledRecoveryOptions, RECOVERY_OPTIONS } from "./options.js";
import { RunAttempt } from "./run-attempt.js";
import { RunGaveUpError } from "./run-gave-up-error.js";
import type {
  CheckpointPlan,
  MetricValue,
  RecoverableService,
  RecoverableTraining,
  RecoveryLog,
  RecoveryPolicy,
  RunCheckpoint,
  RunEvent,
  RunMetrics,
  RunWithRecoveryOptions,
  RunWithRecoveryResult,
  StepContext,
  StepMetrics,
} from "./types.js";

const FINAL_PLAN = { name: "final", sampler: true };
/** A run may stay paused for any time, so its checkpoint does not expire. */
const PAUSE_PLAN: CheckpointPlan = { sampler: true };

/**
 * Trains `steps` steps even if the server restarts or the session is lost: it saves checkpoints of weights and optimizer,
 * and after a failure continues from the last one. Each step counts exactly once in the final weights.
 */
export async function runWithRecovery<S extends RecoverableService<T>, T extends RecoverableTraining>(
  options: RunWithRecoveryOptions<S, T>,
): Promise<RunWithRecoveryResult> {
  const checked = RECOVERY_OPTIONS.check(options, "runWithRecovery");
  return new RecoveringRun(checked as FilledRecoveryOptions<S, T>).run();
}

class RecoveringRun<S extends RecoverableService<T>, T extends RecoverableTraining> {
  readonly #options: FilledRecoveryOptions<S, T>;
  readonly #policy: RecoveryPolicy;
  readonly #log: RecoveryLog;
  readonly #clock: Clock;
  readonly #closings: Promise<void>[] = [];
  readonly #unusable = new Set<string>();
  #named: string | undefined;
  #lastService: S | undefined;
  /** Restores since the last new checkpoint. */
  #attemptNumber = 0;
  #restores = 0;
  #step = 0;
  /** Steps done at least once. */
  #furthest: number;

  constructor(options: FilledRecoveryOptions<S, T>) {
    this.#options = options;
    this.#policy = options.policy;
    this.#log = options.log ?? new MemoryLog();
    this.#clock = options.clock ?? systemClock;
    this.#furthest = (this.#log.lastMetricsStep ?? -1) + 1;
    if (this.#policy.checkpoint !== "latest") this.#named = this.#policy.checkpoint;
  }

  async run(): Promise<RunWithRecoveryResult> {
    const { signal, steps } = this.#options;
    throwIfAborted(signal, "The run");
    const reached = this.#log.resumableCheckpoints().at(-1);
    if (reached?.final === true && reached.batch === steps && this.#named === undefined)
      return this.#finish(reached);
    try {
      for (;;) {
        let attempt: RunAttempt<S, T> | undefined;
        let releaseSignal = () => {};
        try {
          const current = new RunAttempt<S, T>(await this.#newService(), this.#policy, this.#clock);
          attempt = current;
          releaseSignal = onAbort(signal, () =>
            current.fail({ reason: "fatal", error: abortError(signal as AbortSignal, "The run") }),
          );
          throwIfAborted(signal, "The run");
          const checkpoint = await this.#live(current);
          const isPaused = checkpoint.final !== true;
          await (await current.end(isPaused ? "interrupted" : "success")).closed;
          return this.#finish(checkpoint);
        } catch (error) {
          await this.#recover(attempt, error);
        } finally {
          releaseSignal();
        }
      }
    } finally {
      await Promise.all(this.#closings);
    }
  }

  /** Until the last step is saved, or something throws. */
  async #live(attempt: RunAttempt<S, T>): Promise<RunCheckpoint> {
    const { steps, step: train, measure, pauseSignal } = this.#options;
    const { service, signal } = attempt;
    let isEnded = false;
    let added: PendingMetrics[] = [];
    const context: StepContext<S> = {
      service,
      signal,
      end: () => {
        isEnded = true;
      },
      addMetrics: (metrics) => {
        const resolved = Promise.resolve(metrics).then(resolveAll);
        added.push({ metrics: this.#watch(attempt, resolved) });
      },
    };
    const { training, batch: first, checkpoint } = await this.#begin(attempt);
    /** Lines and checkpoints reach the log in the order of their steps. */
    let written: Promise<unknown> = checkpoint;
    let behind: Promise<unknown> = checkpoint;
    let savedBatch = first;
    for (let step = first; ; step += 1) {
      this.#step = step;
      if (pauseSignal?.aborted === true && step < steps) {
        // A model has each name once.
        const name = `${checkpointName(step)}${savedBatch === step ? "-paused" : ""}`;
        return attempt.during(this.#save(attempt, training, step, { ...PAUSE_PLAN, name }, written));
      }
      const measured = await this.#work(attempt, async () => measure?.(training, step, context));
      if (step === steps || isEnded) {
        const line = this.#write(attempt, step, written, [measured, ...added], { isStep: false });
        return attempt.during(this.#save(attempt, training, step, FINAL_PLAN, line));
      }
      const made = await this.#work(attempt, async () => train(training, step, context));
      const requests = Promise.all(attempt.takeRequests());
      const parts = [made, measured, ...added];
      added = [];
      written = this.#write(attempt, step, Promise.all([written, requests]), parts);
      // One step may be on its way while the next is made; no more, so that a failure is noticed soon.
      await attempt.during(behind);
      behind = requests;
      const done = step + 1;
      const plan = done === steps ? undefined : this.#planAt(done);
      if (plan === undefined && done !== steps) continue;
      if (attempt.hasLooseGradients) await attempt.during(written);
      if (attempt.hasLooseGradients) {
        throw new ValidationError(
          "step",
          `step ${step} must end with optimStep: a checkpoint follows it, and gradients that are not applied are not part of one`,
        );
      }
      if (plan === undefined) continue;
      written = this.#save(attempt, training, done, plan, written);
      savedBatch = done;
    }
  }

  async #begin(
    attempt: RunAttempt<S, T>,
  ): Promise<{ training: T; batch: number; checkpoint: Promise<RunCheckpoint> }> {
    const { service } = attempt;
    const { start, steps } = this.#options;
    const from = this.#choose();
    if (from === undefined) {
      const training = attempt.watch(await attempt.during(start(service)));
      this.#emit({ type: "started", modelId: training.modelId });
      // Once that is saved the start need not be repeated, which could give other initial weights.
      const checkpoint = this.#save(attempt, training, 0, this.#planAt(0) ?? {}, Promise.resolve());
      return { training, batch: 0, checkpoint };
    }
    if (from.batch > steps) {
      throw new ValidationError(
        "steps",
        `steps must be at least ${from.batch}, which the run has reached already (checkpoint ${from.name}), got ${steps}`,
      );
    }
    this.#step = from.batch;
    const training = attempt.watch(await this.#restore(attempt, from));
    if (this.#log.resumableCheckpoints().at(-1) !== from) await this.#log.logCheckpoint(from);
    this.#named = undefined;
    if (this.#attemptNumber > 0) this.#restores += 1;
    this.#emit({
      type: "restored",
      attempt: this.#attemptNumber,
      modelId: training.modelId,
      checkpoint: from,
    });
    return { training, batch: from.batch, checkpoint: Promise.resolve(from) };
  }

  async #restore(attempt: RunAttempt<S, T>, from: RunCheckpoint): Promise<T> {
    const { service, signal } = attempt;
    const restore =
      this.#options.restore ??
      ((client: S) => client.createTrainingClientFromStateWithOptimizer(from.statePath, { signal }));
    try {
      return await attempt.during(restore(service, from));
    } catch (error) {
      if (attempt.failure === undefined && this.#named === undefined && blamesCheckpoint(error)) {
        this.#unusable.add(from.statePath);
        attempt.fail({ reason: this.#candidates().length === 0 ? "fatal" : "lost", error });
      }
      throw error;
    }
  }

  /** The checkpoint to go on from; undefined when nothing was ever saved. */
  #choose(): RunCheckpoint | undefined {
    const all = this.#log.resumableCheckpoints();
    if (this.#named === undefined || all.length === 0) return this.#candidates().at(-1);
    const named = all.findLast(({ name }) => name === this.#named);
    if (named !== undefined) return named;
    throw new ValidationError(
      "policy.checkpoint",
      `policy.checkpoint must be "latest" or the name of a checkpoint of the run (${all.map(({ name }) => name).join(", ")}), got ${JSON.stringify(this.#named)}`,
    );
  }

  #candidates(): readonly RunCheckpoint[] {
    return this.#log.resumableCheckpoints().filter(({ statePath }) => !this.#unusable.has(statePath));
  }

  /** Calls `measure` or `step`. Its metrics may come later, but their failure ends this attempt as soon as it is known. */
  async #work(attempt: RunAttempt<S, T>, work: () => Promise<StepResult>): Promise<PendingMetrics> {
    const { metrics } = await attempt.during(finishStep(work()));
    this.#watch(attempt, metrics);
    return { metrics };
  }

  /** Waits for all of a step; only then does it count as done. */
  #write(
    attempt: RunAttempt<S, T>,
    step: number,
    before: Promise<unknown>,
    parts: readonly PendingMetrics[],
    { isStep = true } = {},
  ): Promise<void> {
    const write = async () => {
      await before;
      const resolved = Object.assign({}, ...(await Promise.all(parts.map(({ metrics }) => metrics))));
      if (attempt.failure !== undefined) throw attempt.failure.error;
      const hasMetrics = Object.keys(resolved).length > 0;
      const isLogged = step <= (this.#log.lastMetricsStep ?? -1);
      if (!isLogged && hasMetrics) await this.#log.logMetrics(resolved, step);
      if (!isStep) {
        if (hasMetrics) this.#emit({ type: "measured", batch: step, metrics: resolved });
        return;
      }
      this.#emit({ type: "step", step, metrics: resolved, repeated: step < this.#furthest });
      this.#furthest = Math.max(this.#furthest, step + 1);
    };
    return this.#watch(attempt, write());
  }

  /** Sends the save at once, so that it stands between this step and the next; it counts when all before it is written. */
  #save(
    attempt: RunAttempt<S, T>,
    training: T,
    batch: number,
    {
      name = checkpointName(batch),
      sampler,
      ttlSeconds,
      rolling,
    }: CheckpointPlan & { readonly name?: string },
    before: Promise<unknown>,
  ): Promise<RunCheckpoint> {
    const { signal } = attempt;
    const save = async (): Promise<RunCheckpoint> => {
      const saving = Promise.all([
        training.saveState(name, { signal, ttlSeconds }),
        sampler ? training.saveWeightsForSampler(name, { signal, ttlSeconds }) : undefined,
      ]);
      attempt.takeRequests();
      saving.catch(() => {});
      await before;
      const [state, samplerWeights] = await saving;
      // A checkpoint of a run that went bad unnoticed is not one to go back to.
      await attempt.checkCorrupted(training.modelId);
      const checkpoint: RunCheckpoint = {
        name,
        batch,
        ...(name === FINAL_PLAN.name ? { final: true } : {}),
        statePath: state.path,
        ...(samplerWeights === undefined ? {} : { samplerPath: samplerWeights.path }),
        ...(rolling ? { rolling } : {}),
      };
      await this.#log.logCheckpoint(checkpoint);
      // The checkpoint of an attempt that has failed meanwhile does not make the next attempt a first one.
      if (attempt.failure === undefined) this.#attemptNumber = 0;
      this.#emit({ type: "checkpoint", checkpoint });
      return checkpoint;
    };
    return this.#watch(attempt, save());
  }

  #planAt(batch: number): CheckpointPlan | undefined {
    const { checkpointAt, checkpointEvery, checkpointTtlSeconds: ttlSeconds } = this.#options;
    if (checkpointAt !== undefined) return checkpointAt(batch);
    return batch % checkpointEvery === 0 ? { ttlSeconds } : undefined;
  }

  /** Work that is not awaited yet also ends this attempt when it fails. */
  #watch<R>(attempt: RunAttempt<S, T>, work: Promise<R>): Promise<R> {
    work.catch((error: unknown) => attempt.fail(classify(error, this.#policy.shouldRestore)));
    return work;
  }

  /** Ends a failed attempt and waits until the next may begin; throws if the run gives up. */
  async #recover(attempt: RunAttempt<S, T> | undefined, thrown: unknown): Promise<void> {
    const { signal, random = Math.random } = this.#options;
    const failure = attempt?.failure ?? classify(thrown, this.#policy.shouldRestore);
    const { error, reason } = failure;
    const isStopped = signal?.aborted === true;
    if (attempt !== undefined) {
      attempt.fail(failure);
      const { closed } = await attempt.end(isStopped ? "interrupted" : "errored", messageOf(error));
      this.#closings.push(closed);
    }
    if (isStopped) throw abortError(signal, "The run");
    this.#emit({ type: "failed", reason, error, step: this.#step, attempt: this.#attemptNumber });
    if (reason === "fatal") throw this.#givingUp(error);
    const checkpoint = this.#chooseOrGiveUp();
    if (this.#attemptNumber >= this.#policy.maxAttempts)
      throw this.#givingUp(new RunGaveUpError(this.#attemptNumber, checkpoint, error));
    const { backoffMs, maxBackoffMs } = this.#policy;
    // Up to a quarter less, so that many runs do not come back to a server all at once.
    const policy = { firstMs: backoffMs, maxMs: maxBackoffMs, jitter: 0.25 };
    const delayMs = backOffMs(policy, this.#attemptNumber, { random });
    this.#attemptNumber += 1;
    this.#emit({ type: "restoring", attempt: this.#attemptNumber, delayMs, checkpoint });
    await this.#clock.sleep(delayMs, signal);
  }

  #chooseOrGiveUp(): RunCheckpoint | undefined {
    try {
      return this.#choose();
    } catch (error) {
      throw this.#givingUp(error);
    }
  }

  #givingUp(error: unknown): unknown {
    this.#emit({ type: "gave_up", error, attempts: this.#attemptNumber });
    return error;
  }

  async #newService(): Promise<S> {
    const service = await this.#options.service();
    if (service === this.#lastService) {
      throw new ValidationError(
        "service",
        "service must make a new ServiceClient each time it is called, got the one of the call before: its session is lost and it is closed",
      );
    }
    this.#lastService = service;
    return service;
  }

  #finish(checkpoint: RunCheckpoint): RunWithRecoveryResult {
    this.#emit({ type: checkpoint.final === true ? "finished" : "paused", checkpoint });
    return { checkpoint, restores: this.#restores };
  }

  #emit(event: RunEvent): void {
    try {
      this.#options.onEvent?.(event);
    } catch {
      // An error of a listener does not end the run.
    }
  }
}

type StepResult = Awaited<ReturnType<RunWithRecoveryOptions<never, never>["step"]>>;

/** Not a promise of metrics: awaiting this means that the step's requests are sent, not done. */
interface PendingMetrics {
  readonly metrics: Promise<RunMetrics>;
}

/** Metrics that come too late, of a step that a failure has overtaken, must not end the process. */
async function finishStep(returned: Promise<StepResult>): Promise<PendingMetrics> {
  const metrics = resolveAll((await returned) ?? {});
  metrics.catch(() => {});
  return { metrics };
}

async function resolveAll(metrics: StepMetrics): Promise<RunMetrics> {
  const pending = Object.entries(metrics).map(async ([name, value]) => [name, await value] as const);
  const entries = await Promise.all(pending);
  return Object.fromEntries(
    entries.filter((entry): entry is readonly [string, MetricValue] => entry[1] !== undefined),
  );
}

function checkpointName(batch: number): string {
  return String(batch).padStart(6, "0");
}
