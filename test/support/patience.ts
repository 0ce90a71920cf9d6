import { vi } from "vitest";

/** Nothing that a test waits for is late on a machine that is busy with other work: only what never comes fails. */
const PATIENCE_MS = 120_000;

const { waitFor, waitUntil } = vi;
const patiently = (options: number | object = {}) =>
  typeof options === "number" ? options : { timeout: PATIENCE_MS, ...options };
vi.waitFor = (callback, options) => waitFor(callback, patiently(options));
vi.waitUntil = (callback, options) => waitUntil(callback, patiently(options));
