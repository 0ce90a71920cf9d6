import type { RestClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";

/** The weights that did best on a metric. */
export interface BestWeights {
  /** Steps done. */
  readonly batch: number;
  readonly samplerPath: string;
  readonly metric: string;
  readonly value: number;
}

/** Finds the best weights among those that are evaluated, and lets go of the others. */
export class BestKeeper {
  readonly metric: string;
  readonly patience: number | undefined;
  readonly #sign: 1 | -1;
  readonly #rest: Pick<RestClient, "deleteCheckpoint" | "setCheckpointTtl">;
  readonly #record: (best: BestWeights) => Promise<void>;
  #best: BestWeights | undefined;

  constructor(
    { metric, goal, patience }: { metric: string; goal: "lower" | "higher"; patience?: number | undefined },
    {
      rest,
      best,
      record,
    }: {
      rest: Pick<RestClient, "deleteCheckpoint" | "setCheckpointTtl">;
      best: BestWeights | undefined;
      record: (best: BestWeights) => Promise<void>;
    },
  ) {
    this.metric = metric;
    this.patience = patience;
    this.#sign = goal === "lower" ? 1 : -1;
    this.#rest = rest;
    this.#record = record;
    this.#best = best;
  }

  get best(): BestWeights | undefined {
    return this.#best;
  }

  /** Keeps these weights if they are better than all before them, and deletes those that are not the best any more. */
  async consider(
    batch: number,
    samplerPath: string,
    metrics: Readonly<Record<string, number>>,
  ): Promise<void> {
    const { metric } = this;
    const value = metrics[metric];
    if (value === undefined) {
      throw new ValidationError(
        "best.metric",
        `best.metric must be one of the metrics that are measured (${Object.keys(metrics).join(", ")}), got ${JSON.stringify(metric)}`,
      );
    }
    const before = this.#best;
    const isBetter = before === undefined || this.#sign * (before.value - value) > 0;
    if (isBetter) {
      const best = { batch, samplerPath, metric, value };
      await this.#record(best);
      this.#best = best;
    }
    const loser = isBetter ? before?.samplerPath : samplerPath;
    // What cannot be deleted expires.
    if (loser !== undefined) await this.#rest.deleteCheckpoint(loser).catch(() => {});
  }

  /** Whether so many evaluations brought nothing better that it is time to stop. */
  isOver(batch: number, evaluateEvery: number): boolean {
    if (this.patience === undefined || this.#best === undefined) return false;
    return (batch - this.#best.batch) / evaluateEvery >= this.patience;
  }

  /** The best weights of a finished run do not expire. */
  async keepForEver(): Promise<void> {
    if (this.#best !== undefined)
      await this.#rest.setCheckpointTtl(this.#best.samplerPath, null).catch(() => {});
  }
}
