import { vi } from "vitest";
import type { FakeClock } from "../support/fake-clock.js";

/** How often the server looks for what is over. */
const CLEAN_UP_EVERY_MS = 5_000;

/** Lets the server notice the time that passes: it sets the timer of its next clean-up when one has ended, its files written. */
export async function passTime(clock: FakeClock, durationMs: number): Promise<void> {
  for (let passed = 0; passed < durationMs; passed += CLEAN_UP_EVERY_MS) {
    const before = clock.timersSet(CLEAN_UP_EVERY_MS);
    await clock.advance(CLEAN_UP_EVERY_MS);
    await vi.waitUntil(() => clock.timersSet(CLEAN_UP_EVERY_MS) > before, { interval: 1 });
  }
}
