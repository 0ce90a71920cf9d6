import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../test/support/fake-clock.js";
import { APIUserAbortError } from "../errors.js";
import { systemClock } from "./clock.js";

describe("systemClock.sleep", () => {
  it("waits, and leaves no listener when time wins", async () => {
    const controller = new AbortController();
    const startedMs = systemClock.now();
    await systemClock.sleep(20, controller.signal);
    expect(systemClock.now() - startedMs).toBeGreaterThanOrEqual(18);
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
  });

  it("rejects at once with the signal's reason, and leaves no timer when the signal wins", async () => {
    const timers = () => process.getActiveResourcesInfo().filter((resource) => resource === "Timeout").length;
    const before = timers();
    const controller = new AbortController();
    const sleeping = systemClock.sleep(60_000, controller.signal);
    expect(timers()).toBe(before + 1);
    controller.abort("stop");
    await expect(sleeping).rejects.toMatchObject({ name: "APIUserAbortError", cause: "stop" });
    expect(timers()).toBe(before);
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
  });

  it("does not start under an aborted signal", async () => {
    await expect(systemClock.sleep(60_000, AbortSignal.abort())).rejects.toThrow(APIUserAbortError);
  });
});

describe("systemClock.setTimer", () => {
  it("can be cancelled, and takes delays beyond what setTimeout can hold", async () => {
    let fired = 0;
    const cancelFar = systemClock.setTimer(() => (fired += 1), 1e12);
    const cancelNear = systemClock.setTimer(() => (fired += 1), 1);
    cancelNear();
    await systemClock.sleep(15);
    expect(fired).toBe(0);
    cancelFar();
  });

  it("keeps no process alive when in the background", () => {
    const timers = () => process.getActiveResourcesInfo().filter((resource) => resource === "Timeout").length;
    const before = timers();
    const cancel = systemClock.setTimer(() => {}, 60_000, { background: true });
    expect(timers()).toBe(before);
    cancel();
  });
});

describe("FakeClock", () => {
  it("fires in order of time as it advances", async () => {
    const clock = new FakeClock();
    const fired: string[] = [];
    clock.setTimer(() => fired.push(`late ${clock.now()}`), 300);
    clock.setTimer(() => fired.push(`early ${clock.now()}`), 100);
    const cancel = clock.setTimer(() => fired.push("never"), 200);
    cancel();
    await clock.advance(250);
    expect(fired).toEqual(["early 100"]);
    await clock.advance(250);
    expect(fired).toEqual(["early 100", "late 300"]);
    expect(clock.now()).toBe(500);
    expect(clock.pending).toBe(0);
  });

  it("ends sleeps by itself in auto mode, but no timers", async () => {
    const clock = new FakeClock({ auto: true });
    let timedOut = false;
    clock.setTimer(() => {
      timedOut = true;
    }, 1000);
    await clock.sleep(3_600_000);
    expect(clock.now()).toBe(3_600_000);
    expect(clock.sleeps).toEqual([3_600_000]);
    expect(timedOut).toBe(false);
  });
});
