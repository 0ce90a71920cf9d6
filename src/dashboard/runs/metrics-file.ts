import { randomUUID } from "node:crypto";
import type { MetricsGrowth, RunCurves } from "../api.js";
import { LineTail } from "./line-tail.js";
import { MetricsColumns, type Window } from "./metrics-columns.js";

/** More new lines than these are asked for thinned out, as a whole run is. */
const MAX_GROWTH_ROWS = 2000;

/** The part of a run's metrics that a page has already. */
export interface MetricsCursor {
  readonly generation: string;
  readonly rows: number;
}

/** A run's `metrics.jsonl` in memory, which follows the file whenever it is asked. */
export class MetricsFile {
  readonly #run: string;
  readonly #tail: LineTail;
  #columns = new MetricsColumns();
  #generation = randomUUID();
  #reading: Promise<void> | undefined;

  constructor(run: string, path: string) {
    this.#run = run;
    this.#tail = new LineTail(path, {
      lines: (content) => this.#columns.add(content),
      reset: () => {
        this.#columns = new MetricsColumns();
        this.#generation = randomUUID();
      },
      skipped: () => {
        this.#columns.badLines += 1;
      },
    });
  }

  /** Everything, in at most the requested number of points. */
  async read(window: Window): Promise<RunCurves> {
    await this.#follow();
    const { rows, hasTimes, texts, badLines, leftOut } = this.#columns;
    const series = this.#columns.series(window);
    return {
      run: this.#run,
      generation: this.#generation,
      ...{ rows, hasTimes, series, texts: { ...texts }, badLines, leftOut },
    };
  }

  /** The added values; undefined if there is nothing new, `stale` if all must be loaded again. */
  async growth({ generation, rows: from }: MetricsCursor): Promise<MetricsGrowth | "stale" | undefined> {
    await this.#follow();
    const { rows } = this.#columns;
    if (generation !== this.#generation || from > rows || rows - from > MAX_GROWTH_ROWS) return "stale";
    if (from === rows) return undefined;
    return { run: this.#run, generation, from, rows, series: this.#columns.growth(from) };
  }

  /** Every line as a table, in pieces. */
  async csv(): Promise<Iterable<string>> {
    await this.#follow();
    return this.#columns.csv();
  }

  #follow(): Promise<void> {
    this.#reading ??= this.#tail.read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }
}
