import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { onAbort } from "./abort.js";
import { Interruption, platformSignalOf } from "./interruption.js";

describe("Interruption", () => {
  it("behaves as an AbortSignal wherever one is taken", async () => {
    const signal = new Interruption();
    const listener = vi.fn();
    signal.addEventListener("abort", listener);
    signal.onabort = vi.fn();
    const linked = AbortSignal.any([signal.platformSignal]);
    const asleep = sleep(60_000, undefined, { signal });
    const reason = new Error("enough");
    signal.abort(reason);
    signal.abort(new Error("too late"));
    expect(signal).toMatchObject({ aborted: true, reason });
    expect(() => signal.throwIfAborted()).toThrow("enough");
    expect(linked.reason).toBe(reason);
    await expect(asleep).rejects.toMatchObject({ name: "AbortError" });
    expect(listener).toHaveBeenCalledOnce();
    expect(signal.onabort).toHaveBeenCalledOnce();
    expect(signal.platformSignal.aborted).toBe(true);
  });

  it("is given to fetch as the platform's own signal, which newer versions insist on", () => {
    const signal = new Interruption();
    const given = platformSignalOf<AbortSignal>(signal);
    expect(given).toBeInstanceOf(AbortSignal);
    signal.abort();
    expect(given.aborted).toBe(true);
    const own = new AbortController().signal;
    expect(platformSignalOf(own)).toBe(own);
  });

  it("calls subscribers back once, unless they have left", () => {
    const signal = new Interruption();
    const [stays, leaves] = [vi.fn(), vi.fn()];
    onAbort(signal, stays);
    onAbort(signal, leaves)();
    signal.abort();
    signal.abort();
    expect(stays).toHaveBeenCalledOnce();
    expect(leaves).not.toHaveBeenCalled();
    expect(signal.reason).toMatchObject({ name: "AbortError" });
  });
});
