import type { ExchangeEvent } from "../transport/index.js";
import { Histogram, type HistogramSummary } from "./histogram.js";

/** All counters and histograms of a client at one moment. */
export interface MetricsSnapshot {
  counters: Record<string, number>;
  histograms: Record<string, HistogramSummary>;
}

/** How many distinct counter names, and how many histogram names, are kept; the rest share one name. */
export const MAX_METRIC_NAMES = 256;
export const OVERFLOW_NAME = "other";

/** Collections whose next segment is always a name, even one that looks like a word of the API. */
const NAMED_BY_ID = ["sessions", "training_runs", "samplers", "weights", "sampler_weights"];

/** Counters and histograms of everything this client exchanged with the server, in bounded memory. */
export class ClientMetrics {
  readonly #counters = new Map<string, number>();
  readonly #histograms = new Map<string, Histogram>();

  increment(name: string, amount = 1): void {
    const key = boundedName(this.#counters, name);
    this.#counters.set(key, (this.#counters.get(key) ?? 0) + amount);
  }

  observe(name: string, value: number): void {
    const key = boundedName(this.#histograms, name);
    let histogram = this.#histograms.get(key);
    if (histogram === undefined) {
      histogram = new Histogram();
      this.#histograms.set(key, histogram);
    }
    histogram.observe(value);
  }

  recordExchange(event: ExchangeEvent): void {
    const route = `${event.method} ${routeOf(event.path)}`;
    this.increment("requests");
    this.increment(`requests.pool.${event.pool}`);
    this.increment(`requests.status.${event.status ?? "none"}`);
    if (event.attempt > 0) this.increment("requests.retries");
    if (event.status === null || event.status >= 400) this.increment("requests.failed");
    this.increment("bytes.sent", event.requestBytes);
    this.increment("bytes.received", event.responseBytes);
    this.observe("durationMs", event.durationMs);
    this.observe(`durationMs.pool.${event.pool}`, event.durationMs);
    this.observe(`durationMs.${route}`, event.durationMs);
    this.observe("requestBytes", event.requestBytes);
    this.observe("responseBytes", event.responseBytes);
  }

  /** A copy: later requests do not change it. */
  snapshot(): MetricsSnapshot {
    return {
      counters: Object.fromEntries(this.#counters),
      histograms: Object.fromEntries(
        [...this.#histograms].map(([name, histogram]) => [name, histogram.summary()]),
      ),
    };
  }

  reset(): void {
    this.#counters.clear();
    this.#histograms.clear();
  }
}

function boundedName(kept: ReadonlyMap<string, unknown>, name: string): string {
  return kept.has(name) || kept.size < MAX_METRIC_NAMES ? name : OVERFLOW_NAME;
}

/**
 * The path with what names one object replaced by `{id}`, so that a metric per route stays a metric per
 * route: `/api/v1/training_runs/run-1/checkpoints` becomes `/api/v1/training_runs/{id}/checkpoints`.
 */
export function routeOf(path: string): string {
  const [pathname = ""] = path.split("?", 1);
  let parent = "";
  return pathname
    .split("/")
    .map((segment) => {
      const isName =
        (NAMED_BY_ID.includes(parent) && segment !== "search") || !/^(v\d+)?[a-z_]*$/.test(segment);
      parent = segment;
      return isName && segment !== "" ? "{id}" : segment;
    })
    .join("/");
}
