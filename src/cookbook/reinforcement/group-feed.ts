import type { TrajectoryGroup } from "../environments/index.js";

/** A group whose episodes are over, and the weights that acted in it. */
export interface RolledGroup {
  /** Its number in the source. */
  readonly index: number;
  readonly group: TrajectoryGroup;
  /** Steps that the weights had been trained for. */
  readonly samplerStep: number;
  readonly seconds: number;
}

/** How groups are rolled out for the steps of a run. */
export interface GroupFeedOptions<Sampler> {
  readonly groupsPerBatch: number;
  /** How many steps older than the trained weights those may be that a group is sampled with. */
  readonly maxStepsOffPolicy: number;
  /** Steps of the run: nothing is sampled for steps behind the last. */
  readonly steps: number;
  /** Gives undefined behind the last group of the source. */
  readonly rollOut: (index: number, sampler: Sampler) => Promise<TrajectoryGroup | undefined>;
}

interface Waiting {
  readonly result: Promise<RolledGroup | undefined>;
  readonly resolve: (group: RolledGroup | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Rolls out groups in the order of their numbers, as many at a time as a batch has, each with the newest weights. One
 * begins only when its weights will not be too old at the step that trains on it: so the sampling waits for the
 * training, and no episode is sampled in vain.
 */
export class GroupFeed<Sampler> {
  readonly #options: GroupFeedOptions<Sampler>;
  readonly #groups = new Map<number, Waiting>();
  #weights: { readonly sampler: Sampler; readonly step: number } | undefined;
  #batch: { readonly step: number; readonly first: number };
  /** The group to be rolled out next. */
  #next: number;
  /** Behind the last group of the source. */
  #end = Number.POSITIVE_INFINITY;
  /** When each group began whose episodes run. */
  readonly #rolling = new Map<number, number>();
  #failure: { readonly error: unknown } | undefined;

  constructor(options: GroupFeedOptions<Sampler>, batch: { readonly step: number; readonly first: number }) {
    this.#options = options;
    this.#batch = batch;
    this.#next = batch.first;
  }

  /** From here on groups are sampled with these weights. */
  refresh(sampler: Sampler, step: number): void {
    this.#weights = { sampler, step };
    this.#rollOut();
  }

  /** The step now trains on the groups from `first` on. */
  beginBatch(step: number, first: number): void {
    this.#batch = { step, first };
    this.#rollOut();
  }

  /** A group of the batch, each once; undefined behind the end of the source. */
  async take(index: number): Promise<RolledGroup | undefined> {
    const waiting = this.#waiting(index);
    this.#rollOut();
    try {
      return await waiting.result;
    } finally {
      this.#groups.delete(index);
    }
  }

  /** The groups whose episodes run, the oldest first, with the time since they began. */
  rolling(): readonly { readonly index: number; readonly seconds: number }[] {
    const now = performance.now();
    return [...this.#rolling].map(([index, sinceMs]) => ({ index, seconds: (now - sinceMs) / 1000 }));
  }

  /** Nobody waits any longer, and no group begins. */
  fail(error: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = { error };
    for (const { reject } of this.#groups.values()) reject(error);
  }

  #rollOut(): void {
    while (this.#rolling.size < this.#options.groupsPerBatch && this.#mayBegin(this.#next)) {
      this.#begin(this.#next);
      this.#next += 1;
    }
  }

  #mayBegin(index: number): boolean {
    if (this.#weights === undefined || this.#failure !== undefined || index >= this.#end) return false;
    const { groupsPerBatch, maxStepsOffPolicy, steps } = this.#options;
    const { step, first } = this.#batch;
    const trainedAt = step + Math.floor((index - first) / groupsPerBatch);
    return trainedAt < steps && trainedAt - this.#weights.step <= maxStepsOffPolicy;
  }

  #begin(index: number): void {
    const waiting = this.#waiting(index);
    const { sampler, step: samplerStep } = this.#weights!;
    const startedMs = performance.now();
    this.#rolling.set(index, startedMs);
    const roll = async () => {
      const group = await this.#options.rollOut(index, sampler);
      this.#rolling.delete(index);
      if (group === undefined) this.#endAt(index);
      else waiting.resolve({ index, group, samplerStep, seconds: (performance.now() - startedMs) / 1000 });
      this.#rollOut();
    };
    roll().catch((error: unknown) => this.fail(error));
  }

  #endAt(end: number): void {
    this.#end = Math.min(this.#end, end);
    for (const [index, { resolve }] of this.#groups) if (index >= this.#end) resolve(undefined);
  }

  #waiting(index: number): Waiting {
    const known = this.#groups.get(index);
    if (known !== undefined) return known;
    let resolve!: Waiting["resolve"];
    let reject!: Waiting["reject"];
    const result = new Promise<RolledGroup | undefined>((resolved, rejected) => {
      resolve = resolved;
      reject = rejected;
    });
    // Whoever takes it learns of it; one that nobody takes any more must not end the process.
    result.catch(() => {});
    if (this.#failure !== undefined) reject(this.#failure.error);
    if (index >= this.#end) resolve(undefined);
    const waiting = { result, resolve, reject };
    this.#groups.set(index, waiting);
    return waiting;
  }
}
