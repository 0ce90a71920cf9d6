import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { APIUserAbortError } from "../errors.js";
import { ByteBudget, Semaphore } from "./semaphore.js";

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Whether a promise is still waiting after everything else has run. */
async function isWaiting(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  promise.then(
    () => {
      settled = true;
    },
    () => {
      settled = true;
    },
  );
  await turn();
  return !settled;
}

describe("Semaphore", () => {
  it("admits up to its limit, then in order", async () => {
    const semaphore = new Semaphore(2);
    const first = await semaphore.acquire();
    await semaphore.acquire();
    const order: string[] = [];
    const third = semaphore.acquire().then((release) => {
      order.push("third");
      return release;
    });
    const fourth = semaphore.acquire().then(() => order.push("fourth"));
    expect(await isWaiting(third)).toBe(true);
    first();
    const releaseThird = await third;
    expect(await isWaiting(fourth)).toBe(true);
    expect(semaphore.held).toBe(2);
    releaseThird();
    await fourth;
    expect(order).toEqual(["third", "fourth"]);
  });

  it("counts a release once", async () => {
    const semaphore = new Semaphore(1);
    const release = await semaphore.acquire();
    release();
    release();
    expect(semaphore.held).toBe(0);
    await semaphore.acquire();
    expect(await isWaiting(semaphore.acquire())).toBe(true);
  });

  it("lets a waiter leave by its signal, and the next one still comes in", async () => {
    const semaphore = new Semaphore(1);
    const release = await semaphore.acquire();
    const controller = new AbortController();
    const leaving = semaphore.acquire(controller.signal);
    const staying = semaphore.acquire();
    controller.abort(new Error("enough"));
    await expect(leaving).rejects.toThrow(APIUserAbortError);
    await expect(leaving).rejects.toMatchObject({ cause: new Error("enough") });
    release();
    await staying;
    expect(semaphore.waiting).toBe(0);
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
  });

  it("leaves no listener on the signal of one that was admitted", async () => {
    const semaphore = new Semaphore(1);
    const release = await semaphore.acquire();
    const controller = new AbortController();
    const waiting = semaphore.acquire(controller.signal);
    release();
    await waiting;
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
  });

  it("refuses a signal that is already aborted", async () => {
    const semaphore = new Semaphore(1);
    await expect(semaphore.acquire(AbortSignal.abort())).rejects.toThrow(APIUserAbortError);
    expect(semaphore.held).toBe(0);
  });
});

describe("ByteBudget", () => {
  it("lets one request overdraw it, and holds the next until it is balanced", async () => {
    const budget = new ByteBudget(100);
    const releaseLarge = await budget.acquire(1000);
    expect(budget.balanceBytes).toBe(-900);
    const next = budget.acquire(10);
    expect(await isWaiting(next)).toBe(true);
    releaseLarge();
    const releaseNext = await next;
    expect(budget.balanceBytes).toBe(90);
    releaseNext();
    expect(budget.balanceBytes).toBe(100);
  });

  it("does not wait at a balance of exactly zero", async () => {
    const budget = new ByteBudget(100);
    await budget.acquire(100);
    await budget.acquire(1);
    expect(budget.balanceBytes).toBe(-1);
  });

  it("admits waiters in order only as far as the balance goes", async () => {
    const budget = new ByteBudget(100);
    const release = await budget.acquire(150);
    const first = budget.acquire(120);
    const second = budget.acquire(1);
    release();
    const releaseFirst = await first;
    expect(await isWaiting(second)).toBe(true);
    releaseFirst();
    await second;
    expect(budget.balanceBytes).toBe(99);
  });

  it("forgets a waiter whose signal aborts", async () => {
    const budget = new ByteBudget(10);
    const release = await budget.acquire(20);
    const controller = new AbortController();
    const leaving = budget.acquire(5, controller.signal);
    controller.abort();
    await expect(leaving).rejects.toThrow(APIUserAbortError);
    release();
    expect(budget.balanceBytes).toBe(10);
    expect(budget.waiting).toBe(0);
  });
});
