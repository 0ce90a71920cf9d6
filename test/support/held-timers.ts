import { onTestFinished, vi } from "vitest";
import { systemClock } from "../../src/transport/clock.js";

/** Timers of that many milliseconds on the system's clock: they fire when the test says so, however busy the machine is. */
export interface HeldTimers {
  /** Set, and neither fired nor cancelled. */
  readonly waiting: number;
  fire(): void;
}

/** Holds timers of one length until the test ends; all others go on as ever. */
export function holdTimersOf(heldMs: number): HeldTimers {
  const held = new Set<() => void>();
  const { setTimer } = systemClock;
  const spy = vi.spyOn(systemClock, "setTimer").mockImplementation((callback, delayMs, options) => {
    if (delayMs !== heldMs) return setTimer(callback, delayMs, options);
    const fire = () => {
      held.delete(fire);
      callback();
    };
    held.add(fire);
    return () => held.delete(fire);
  });
  onTestFinished(() => spy.mockRestore());
  return {
    get waiting() {
      return held.size;
    },
    fire: () => {
      for (const fire of [...held]) fire();
    },
  };
}
