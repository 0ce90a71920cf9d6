import { describe, expect, it } from "vitest";
import type { ExchangeEvent } from "../transport/index.js";
import { ClientMetrics, MAX_METRIC_NAMES, OVERFLOW_NAME, routeOf } from "./metrics.js";

const exchange = (event: Partial<ExchangeEvent> = {}): ExchangeEvent => ({
  pool: "sample",
  method: "POST",
  path: "/api/v1/asample",
  status: 200,
  durationMs: 10,
  attempt: 0,
  requestBytes: 100,
  responseBytes: 20,
  ...event,
});

describe("ClientMetrics", () => {
  it("counts every attempt by pool, status, failure and retry, and measures its time and bytes", () => {
    const metrics = new ClientMetrics();
    metrics.recordExchange(exchange());
    metrics.recordExchange(exchange({ status: 429, durationMs: 30 }));
    metrics.recordExchange(exchange({ status: null, attempt: 1, responseBytes: 0 }));
    metrics.recordExchange(exchange({ pool: "train", path: "/api/v1/forward_backward", requestBytes: 5000 }));
    const { counters, histograms } = metrics.snapshot();
    expect(counters).toEqual({
      requests: 4,
      "requests.pool.sample": 3,
      "requests.pool.train": 1,
      "requests.status.200": 2,
      "requests.status.429": 1,
      "requests.status.none": 1,
      "requests.retries": 1,
      "requests.failed": 2,
      "bytes.sent": 5300,
      "bytes.received": 60,
    });
    expect(histograms["durationMs"]).toMatchObject({ count: 4, sum: 60, min: 10, max: 30 });
    expect(histograms["durationMs.POST /api/v1/asample"]).toMatchObject({ count: 3, max: 30 });
    expect(histograms["durationMs.pool.train"]).toMatchObject({ count: 1, p50: 10, p99: 10 });
    expect(histograms["requestBytes"]).toMatchObject({ count: 4, max: 5000 });
  });

  it("hands out copies, and starts again from nothing after reset", () => {
    const metrics = new ClientMetrics();
    metrics.recordExchange(exchange());
    const before = metrics.snapshot();
    metrics.recordExchange(exchange());
    expect(before.counters["requests"]).toBe(1);
    metrics.reset();
    expect(metrics.snapshot()).toEqual({ counters: {}, histograms: {} });
  });

  it("keeps a bounded number of names and loses no count", () => {
    const metrics = new ClientMetrics();
    for (let index = 0; index < 5000; index += 1) {
      metrics.increment(`counter-${index}`);
      metrics.observe(`histogram-${index}`, index);
    }
    const { counters, histograms } = metrics.snapshot();
    expect(Object.keys(counters)).toHaveLength(MAX_METRIC_NAMES + 1);
    expect(counters[OVERFLOW_NAME]).toBe(5000 - MAX_METRIC_NAMES);
    expect(histograms[OVERFLOW_NAME]?.count).toBe(5000 - MAX_METRIC_NAMES);
  });
});

describe("routeOf", () => {
  it.each([
    ["/api/v1/asample", "/api/v1/asample"],
    ["/api/v1/training_runs?limit=3", "/api/v1/training_runs"],
    ["/api/v1/training_runs/run-1/checkpoints", "/api/v1/training_runs/{id}/checkpoints"],
    [
      "/api/v1/training_runs/abc/checkpoints/weights/final/publish",
      "/api/v1/training_runs/{id}/checkpoints/weights/{id}/publish",
    ],
    ["/api/v1/sessions/deadbeef/finish", "/api/v1/sessions/{id}/finish"],
    ["/api/v1/sessions/search", "/api/v1/sessions/search"],
    ["/api/v1/samplers/6f1c%3Asample%3A0", "/api/v1/samplers/{id}"],
    ["/", "/"],
  ])("%s -> %s", (path, route) => {
    expect(routeOf(path)).toBe(route);
  });
});
