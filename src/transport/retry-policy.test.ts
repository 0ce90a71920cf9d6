import { describe, expect, it } from "vitest";
import { APIConnectionError, APIError, APIUserAbortError } from "../errors.js";
import { BACK_OFF, backOffMs, isRetryableError, shouldRetry } from "./retry-policy.js";

const headers = (values: Record<string, string>) => new Headers(values);
const NOW = Date.UTC(2026, 5, 1, 12, 0, 0);
const delay = (values: Record<string, string>, attempt = 0, random = 0) =>
  backOffMs(BACK_OFF.request, attempt, {
    headers: headers(values),
    random: () => random,
    wallNow: () => NOW,
  });

describe("shouldRetry", () => {
  it.each([
    [408, true],
    [409, true],
    [429, true],
    [500, true],
    [502, true],
    [503, true],
    [599, true],
    [400, false],
    [401, false],
    [402, false],
    [403, false],
    [404, false],
    [410, false],
    [422, false],
  ])("of %i is %s", (status, expected) => {
    expect(shouldRetry({ status, headers: headers({}) })).toBe(expected);
  });

  it("lets x-should-retry decide over the status", () => {
    expect(shouldRetry({ status: 404, headers: headers({ "x-should-retry": "true" }) })).toBe(true);
    expect(shouldRetry({ status: 503, headers: headers({ "x-should-retry": "false" }) })).toBe(false);
    expect(shouldRetry({ status: 503, headers: headers({ "x-should-retry": "maybe" }) })).toBe(true);
  });
});

describe("backOffMs", () => {
  it("doubles from 0.5 s up to 10 s", () => {
    expect([0, 1, 2, 3, 4, 5, 9, 2000].map((attempt) => delay({}, attempt))).toEqual([
      500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000,
    ]);
  });

  it("takes off up to a quarter at random", () => {
    expect(delay({}, 2, 1)).toBe(1500);
    expect(delay({}, 2, 0.5)).toBe(1750);
  });

  it.each([
    ["milliseconds", { "retry-after-ms": "1234.5" }, 1234.5],
    ["seconds", { "retry-after": "7" }, 7000],
    ["seconds with a fraction", { "retry-after": "0.25" }, 250],
    ["an HTTP date", { "retry-after": new Date(NOW + 20_000).toUTCString() }, 20_000],
    ["milliseconds before seconds", { "retry-after-ms": "10", "retry-after": "9" }, 10],
    ["seconds when the milliseconds are no number", { "retry-after-ms": "soon", "retry-after": "9" }, 9000],
    ["a whole minute", { "retry-after": "60" }, 60_000],
  ])("obeys %s", (_name, values, expected) => {
    expect(delay(values as Record<string, string>)).toBe(expected);
  });

  it.each([
    ["more than a minute", { "retry-after": "61" }],
    ["zero", { "retry-after-ms": "0" }],
    ["a negative wait", { "retry-after": "-5" }],
    ["a date in the past", { "retry-after": new Date(NOW - 1000).toUTCString() }],
    ["a date far away", { "retry-after": new Date(NOW + 3_600_000).toUTCString() }],
    ["nonsense", { "retry-after": "when I am ready" }],
    ["nothing", { "retry-after": "" }],
  ])("ignores %s", (_name, values) => {
    expect(delay(values as Record<string, string>, 1)).toBe(1000);
  });
});

it.each([
  ["request", [500, 1_000, 2_000, 10_000]],
  ["patient", [1_000, 2_000, 4_000, 30_000]],
  ["poll", [50, 100, 200, 2_000]],
  ["probe", [500, 1_000, 2_000, 5_000]],
  ["billing", [5_000, 5_000, 5_000, 5_000]],
] as const)("the waits of %s", (name, waitsMs) => {
  const waits = [0, 1, 2, 30].map((retries) => backOffMs(BACK_OFF[name], retries, { random: () => 0 }));
  expect(waits).toEqual(waitsMs);
});

describe("isRetryableError", () => {
  it("takes lost connections and the retryable statuses", () => {
    const status = (code: number, values = {}) =>
      APIError.from(code, headers(values), undefined, { method: "GET", path: "/" });
    expect(isRetryableError(new APIConnectionError("c"))).toBe(true);
    expect(isRetryableError(status(503))).toBe(true);
    expect(isRetryableError(status(503, { "x-should-retry": "false" }))).toBe(false);
    expect(isRetryableError(status(404))).toBe(false);
    expect(isRetryableError(new APIUserAbortError("a"))).toBe(false);
    expect(isRetryableError(new Error("e"))).toBe(false);
  });
});
