import type { RestClient } from "../../clients/index.js";
import { wrongField } from "../../wire/index.js";

/** The best weights by a metric. */
export interface BestWeights {
  /** Training steps of these weights at their evaluation. */
  readonly batch: number;
  readonly samplerPath: string;
  readonly metric: string;
  readonly value: number;
}

/** Finds the best of the evaluated weights and releases the others. */
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

  /** Keeps these weights if they are better than all before, and deletes those that no longer are the best. */
  async consider(
    batch: number,
    samplerPath: string,
    metrics: Readonly<Record<string, number>>,
  ): Promise<void> {
    const { metric } = this;
    const value = metrics[metric];
    if (value === undefined) {
      throw wrongField(
        "best.metric",
        `must be one of the metrics that are measured (${Object.keys(metrics).join(", ")}), got ${JSON.stringify(metric)}`,
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
    // Weights that cannot be deleted expire.
    if (loser !== undefined) await this.#rest.deleteCheckpoint(loser).catch(() => {});
  }

  /** Whether the last evaluations brought no improvement, so that it is time to stop. */
  isOver(batch: number, evaluateEvery: number): boolean {
    if (this.patience === undefined || this.#best === undefined) return false;
    return (batch - this.#best.batch) / evaluateEvery >= this.patience;
  }

  /** Keeps the best weights of a finished run from expiring. */
  async keepForEver(): Promise<void> {
    if (this.#best !== undefined)
      await this.#rest.setCheckpointTtl(this.#best.samplerPath, null).catch(() => {});
  }
}
