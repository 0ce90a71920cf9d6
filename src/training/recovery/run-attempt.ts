import { APIConnectionError, APIError, TinkerError } from "../../errors.js";
import { APIFuture } from "../../futures/index.js";
import type { Clock } from "../../transport/index.js";
import { classify, type RunFailure } from "./classify.js";
import type { RecoverableService, RecoverableTraining, RecoveryPolicy } from "./types.js";

/** How long a step that was overtaken by a failure may take to end before the run goes on without it. */
const STEP_GRACE_MS = 10_000;

/** One attempt at a run, from its service client to the failure that ends it. */
export class RunAttempt<S extends RecoverableService<T>, T extends RecoverableTraining> {
  readonly service: S;
  /** Why the attempt ended: the first failure; later ones follow from it. */
  failure: RunFailure | undefined;
  readonly #policy: RecoveryPolicy;
  readonly #clock: Clock;
  readonly #over = new AbortController();
  readonly #failed: Promise<never>;
  #reject: (error: unknown) => void = () => {};
  readonly #working = new Set<PromiseLike<unknown>>();
  readonly #watchers: (() => void)[] = [];
  #requests: APIFuture<unknown>[] = [];
  #hasLooseGradients = false;

  constructor(service: S, policy: RecoveryPolicy, clock: Clock) {
    this.service = service;
    this.#policy = policy;
    this.#clock = clock;
    this.#failed = new Promise((_, reject) => {
      this.#reject = reject;
    });
    this.#failed.catch(() => {});
    const forget = service.onSessionLost?.(() =>
      this.fail({
        reason: "lost",
        error: new TinkerError("The server ended the session: its heartbeat was refused."),
      }),
    );
    if (forget !== undefined) this.#watchers.push(forget);
  }

  /** Aborted when this attempt is over. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** True when gradients were made that no optimStep has applied: a checkpoint would lose them. */
  get hasLooseGradients(): boolean {
    return this.#hasLooseGradients;
  }

  fail(failure: RunFailure): void {
    if (this.failure !== undefined || this.#over.signal.aborted) return;
    this.failure = failure;
    this.#reject(failure.error);
    this.#over.abort(failure.error);
  }

  /** The result of `work`, or this attempt's failure if that comes first. */
  async during<R>(work: PromiseLike<R>): Promise<R> {
    const settled = Promise.resolve(work);
    settled.catch(() => {});
    this.#working.add(settled);
    try {
      return await Promise.race([settled, this.#failed]);
    } finally {
      if (this.failure === undefined) this.#working.delete(settled);
    }
  }

  /** Wraps a client so that a failed request ends this attempt, awaited or not. */
  watch(training: T): T {
    this.#watchRun(training.modelId);
    return new Proxy(training, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => {
          if (this.failure !== undefined) throw this.failure.error;
          const result: unknown = Reflect.apply(value, target, args);
          if (result instanceof APIFuture) this.#track(String(key), result);
          return result;
        };
      },
    });
  }

  /** The requests made since the last call of this. */
  takeRequests(): readonly APIFuture<unknown>[] {
    const requests = this.#requests;
    this.#requests = [];
    return requests;
  }

  /** Asks the server once; a server that cannot say counts as one that sees no fault. */
  async checkCorrupted(modelId: string): Promise<void> {
    const run = await this.#ask(modelId).catch(() => undefined);
    if (run?.corrupted === true) this.fail(corrupted(modelId));
    if (this.failure !== undefined) throw this.failure.error;
  }

  /** Ends everything of this attempt. Resolves when the step under way has ended too; `closed` when the client has. */
  async end(
    status: "success" | "errored" | "interrupted",
    detail?: string,
  ): Promise<{ closed: Promise<void> }> {
    this.#over.abort(this.failure?.error);
    for (const stop of this.#watchers.splice(0)) stop();
    const closed = this.service.close(status, detail).catch(() => {});
    if (this.#working.size > 0) {
      const limit = new AbortController();
      const grace = this.#clock.sleep(STEP_GRACE_MS, limit.signal).catch(() => {});
      await Promise.race([Promise.allSettled(this.#working), grace]);
      limit.abort();
    }
    return { closed };
  }

  #track(method: string, request: APIFuture<unknown>): void {
    if (method === "optimStep") this.#hasLooseGradients = false;
    else if (method.startsWith("forwardBackward")) this.#hasLooseGradients = true;
    this.#requests.push(request);
    request.catch((error: unknown) => this.fail(classify(error, this.#policy.shouldRestore)));
  }

  #watchRun(modelId: string): void {
    const { checkEveryMs, unreachableAfterMs } = this.#policy;
    let silentSinceMs: number | undefined;
    let cancel = () => {};
    const ask = async () => {
      const askedAtMs = this.#clock.now();
      try {
        const run = await this.#ask(modelId);
        silentSinceMs = undefined;
        if (run.corrupted === true) this.fail(corrupted(modelId));
      } catch (error) {
        silentSinceMs = isSilence(error) ? (silentSinceMs ?? askedAtMs) : undefined;
        if (silentSinceMs !== undefined && this.#clock.now() - silentSinceMs >= unreachableAfterMs)
          this.fail({ reason: "unreachable", error });
      }
      if (!this.#over.signal.aborted) schedule();
    };
    const schedule = () => {
      cancel = this.#clock.setTimer(() => void ask(), checkEveryMs, { background: true });
    };
    schedule();
    this.#watchers.push(() => cancel());
  }

  async #ask(modelId: string): Promise<{ readonly corrupted?: boolean | undefined }> {
    const options = { signal: this.#over.signal, maxRetries: 0 };
    return await this.service.createRestClient().getTrainingRun(modelId, options);
  }
}

function corrupted(modelId: string): RunFailure {
  return {
    reason: "corrupted",
    error: new TinkerError(`The server says that training run ${modelId} is corrupted.`),
  };
}

function isSilence(error: unknown): boolean {
  return error instanceof APIConnectionError || (error instanceof APIError && error.status >= 500);
}
