import type { TrajectoryGroup } from "../environments/index.js";

/** The finished episodes of a group, and the step of the weights that sampled them. */
export interface RolloutGroup {
  /** Number of the group in the source. */
  readonly index: number;
  readonly group: TrajectoryGroup;
  /** Training steps of the weights that it began with. */
  readonly samplerStep: number;
  readonly seconds: number;
}

/** Weights to sample with, and their number of training steps. */
export interface SamplerWeights<Sampler> {
  readonly sampler: Sampler;
  readonly step: number;
}

/** Settings of the rollouts for the steps of a run. */
export interface GroupFeedOptions<Sampler> {
  readonly groupsPerBatch: number;
  /** How many steps older than the trained weights the sampling weights may be. */
  readonly maxStepsOffPolicy: number;
  /** Steps of the run: nothing is sampled for steps after the last. */
  readonly steps: number;
  /** Whether running groups switch to newer weights at their next turn. Default: they keep those they began with. */
  readonly followsWeights?: boolean | undefined;
  /** Runs the episodes of a group; returns undefined after the last group of the source. */
  readonly runGroup: (
    index: number,
    weights: () => SamplerWeights<Sampler>,
  ) => Promise<TrajectoryGroup | undefined>;
}

interface Waiting {
  readonly result: Promise<RolloutGroup | undefined>;
  readonly resolve: (group: RolloutGroup | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Samples groups in the order of their numbers, as many at a time as a batch has, each with the newest weights. A group
 * begins only when its weights will not be too old at the step that trains on it: so sampling waits for training, and
 * no episode is wasted.
 */
export class GroupFeed<Sampler> {
  readonly #options: GroupFeedOptions<Sampler>;
  readonly #groups = new Map<number, Waiting>();
  #weights: SamplerWeights<Sampler> | undefined;
  #batch: { readonly step: number; readonly first: number };
  /** Number of the next group to sample. */
  #next: number;
  /** Number after the last group of the source. */
  #end = Number.POSITIVE_INFINITY;
  /** Start times of the running groups. */
  readonly #rolling = new Map<number, number>();
  #failure: { readonly error: unknown } | undefined;

  constructor(options: GroupFeedOptions<Sampler>, batch: { readonly step: number; readonly first: number }) {
    this.#options = options;
    this.#batch = batch;
    this.#next = batch.first;
  }

  /** Sets the weights with which later groups are sampled. */
  refresh(sampler: Sampler, step: number): void {
    this.#weights = { sampler, step };
    this.#startGroups();
  }

  /** Tells the feed that the current step trains on the groups from `first` on. */
  beginBatch(step: number, first: number): void {
    this.#batch = { step, first };
    this.#startGroups();
  }

  /** A group of the batch, each once; undefined after the end of the source. */
  async take(index: number): Promise<RolloutGroup | undefined> {
    const waiting = this.#waiting(index);
    this.#startGroups();
    try {
      return await waiting.result;
    } finally {
      this.#groups.delete(index);
    }
  }

  /** The running groups, oldest first, with the time since they began. */
  rolling(): readonly { readonly index: number; readonly seconds: number }[] {
    const now = performance.now();
    return [...this.#rolling].map(([index, sinceMs]) => ({ index, seconds: (now - sinceMs) / 1000 }));
  }

  /** Stops: pending calls end, and no group begins. */
  fail(error: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = { error };
    for (const { reject } of this.#groups.values()) reject(error);
  }

  #startGroups(): void {
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
    const { runGroup, followsWeights } = this.#options;
    const begun = this.#weights!;
    const startedMs = performance.now();
    this.#rolling.set(index, startedMs);
    const roll = async () => {
      const group = await runGroup(index, followsWeights ? () => this.#weights! : () => begun);
      this.#rolling.delete(index);
      if (group === undefined) this.#endAt(index);
      else {
        const seconds = (performance.now() - startedMs) / 1000;
        waiting.resolve({ index, group, samplerStep: begun.step, seconds });
      }
      this.#startGroups();
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
    const result = new Promise<RolloutGroup | undefined>((resolved, rejected) => {
      resolve = resolved;
      reject = rejected;
    });
    // The one who takes it gets the error; if it is never taken, it must not end the process.
    result.catch(() => {});
    if (this.#failure !== undefined) reject(this.#failure.error);
    if (index >= this.#end) resolve(undefined);
    const waiting = { result, resolve, reject };
    this.#groups.set(index, waiting);
    return waiting;
  }
}
