import { beforeEach, describe, expect, it } from "vitest";
import { FakeClock } from "../../test/support/fake-clock.js";
import { APIConnectionError, APIUserAbortError } from "../errors.js";
import { type BreakerWaiter, CircuitBreaker } from "./circuit-breaker.js";

const lost = new APIConnectionError("connect ECONNREFUSED.");

describe("a circuit breaker", () => {
  let breaker: CircuitBreaker;
  let clock: FakeClock;
  let probes: number;

  beforeEach(() => {
    breaker = new CircuitBreaker();
    clock = new FakeClock();
    probes = 0;
  });
  const open = () => {
    for (let i = 0; i < 3; i += 1) breaker.failed(lost);
  };
  const waiter = (parts: Partial<BreakerWaiter> = {}): BreakerWaiter => ({
    clock,
    random: () => 0,
    signal: undefined,
    deadlineMs: Number.POSITIVE_INFINITY,
    probe: async () => {
      probes += 1;
      breaker.failed(lost);
    },
    ...parts,
  });

  it("opens with the third failure in a row, and closes with any answer", () => {
    breaker.failed(lost);
    breaker.failed(lost);
    breaker.answered();
    breaker.failed(lost);
    breaker.failed(lost);
    expect(breaker.isOpen).toBe(false);
    breaker.failed(lost);
    expect(breaker.isOpen).toBe(true);
    breaker.answered();
    expect(breaker.isOpen).toBe(false);
  });

  it("lets one probe stand for all that wait, at once and then less and less often", async () => {
    open();
    const waiting = Promise.all(Array.from({ length: 2_000 }, () => breaker.untilAnswered(waiter())));
    await clock.advance(0);
    expect(probes).toBe(1);
    await clock.advance(60_000);
    expect(clock.sleeps.slice(0, 6)).toEqual([500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    expect(probes).toBeLessThan(20);
    breaker.answered();
    await clock.advance(5_000);
    await waiting;
  });

  it("lets those who waited come back one after another, in no order", async () => {
    open();
    let next = 0;
    const random = () => (next++ % 10) / 10;
    const back: number[] = [];
    const waiting = Array.from({ length: 1_001 }, () =>
      breaker.untilAnswered(waiter({ random })).then(() => back.push(clock.now())),
    );
    await clock.advance(250);
    breaker.answered();
    await clock.advance(1_000);
    await Promise.all(waiting);
    expect(new Set(back).size).toBe(10);
    expect(Math.max(...back) - Math.min(...back)).toBe(900);
  });

  it("has one who waits alone come back at once", async () => {
    open();
    const waiting = breaker.untilAnswered(
      waiter({
        probe: async () => {
          breaker.answered();
        },
      }),
    );
    await waiting;
    expect(clock.sleeps).toEqual([]);
  });

  it.each(["while it sleeps", "while it asks"])(
    "hands the probe on when the one who makes it gives up %s",
    async (when) => {
      open();
      const giveUp = new AbortController();
      const first = waiter({
        signal: giveUp.signal,
        ...(when === "while it asks" ? { probe: () => new Promise<void>(() => {}) } : {}),
      });
      const abandoned = breaker.untilAnswered(first);
      const waiting = breaker.untilAnswered(waiter());
      await clock.advance(0);
      giveUp.abort();
      await expect(abandoned).rejects.toBeInstanceOf(APIUserAbortError);
      const before = probes;
      await clock.advance(10_000);
      expect(probes).toBeGreaterThan(before);
      breaker.answered();
      await clock.advance(10);
      await waiting;
    },
  );

  it("ends each wait at its deadline, with the reason", async () => {
    open();
    const waiting = breaker.untilAnswered(waiter({ deadlineMs: 20_000 }));
    waiting.catch(() => {});
    await clock.advance(30_000);
    await expect(waiting).rejects.toThrow("The server is not answering: connect ECONNREFUSED.");
    await expect(waiting).rejects.toBeInstanceOf(APIConnectionError);
  });

  it("is one for clients of the same server and key, for as long as one of them lives", () => {
    const make = () => new CircuitBreaker();
    const first = CircuitBreaker.shared.acquire("http://a", "key", make);
    const second = CircuitBreaker.shared.acquire("http://a", "key", make);
    expect(second.value).toBe(first.value);
    expect(CircuitBreaker.shared.acquire("http://a", "other", make).value).not.toBe(first.value);
    expect(CircuitBreaker.shared.acquire("http://b", "key", make).value).not.toBe(first.value);
    first.release();
    expect(CircuitBreaker.shared.acquire("http://a", "key", make).value).toBe(first.value);
    second.release();
  });
});
