import { type Clock, sleepWith, type TimerOptions } from "../../src/transport/clock.js";

interface Timer {
  readonly id: number;
  readonly dueMs: number;
  readonly callback: () => void;
  readonly isSleep: boolean;
}

/** Lets promises and already finished I/O run. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

/**
 * A clock that stands still until it is moved. With `auto: true` every `sleep` ends at the next turn of the
 * event loop, earliest first, and moves the time forward, so back-offs of hours take no time; timers
 * (timeouts, heartbeats) still fire only through `advance`, because real I/O cannot be hurried along with them.
 */
export class FakeClock implements Clock {
  /** The delays asked of `sleep`, in order. */
  readonly sleeps: number[] = [];
  readonly #auto: boolean;
  #startWallMs: number;
  readonly #timers = new Map<number, Timer>();
  readonly #timersSet = new Map<number, number>();
  #nowMs = 0;
  #nextId = 0;

  constructor(options: { auto?: boolean; startWallMs?: number } = {}) {
    this.#auto = options.auto ?? false;
    this.#startWallMs = options.startWallMs ?? Date.UTC(2026, 0, 1);
  }

  now = (): number => this.#nowMs;
  wallNow = (): number => this.#startWallMs + this.#nowMs;

  sleep = (delayMs: number, signal?: AbortSignal): Promise<void> => {
    this.sleeps.push(delayMs);
    return sleepWith((callback, ms) => this.#add(callback, ms, true), delayMs, signal);
  };

  setTimer = (callback: () => void, delayMs: number, _options?: TimerOptions): (() => void) => {
    this.#timersSet.set(delayMs, this.timersSet(delayMs) + 1);
    return this.#add(callback, delayMs, false);
  };

  /** The machine was suspended: the date moves on, timers do not. */
  jumpWall(durationMs: number): void {
    this.#startWallMs += durationMs;
  }

  /** The process was stopped: time moves on, and what fell due meanwhile fires late. */
  stop(durationMs: number): void {
    this.#nowMs += durationMs;
  }

  /** How many timers of this length were set so far. */
  timersSet(delayMs: number): number {
    return this.#timersSet.get(delayMs) ?? 0;
  }

  /** How many timers and sleeps are still waiting. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves time forward, firing what falls due in order and letting promises run in between. */
  async advance(durationMs: number): Promise<void> {
    const endMs = this.#nowMs + durationMs;
    await settle();
    for (;;) {
      const next = this.#earliest((timer) => timer.dueMs <= endMs);
      if (next === undefined) break;
      this.#fire(next);
      await settle();
    }
    this.#nowMs = endMs;
    await settle();
  }

  /** Moves to the next timer, whatever it is, and fires it; false when there is none. */
  async advanceToNext(): Promise<boolean> {
    await settle();
    const next = this.#earliest(() => true);
    if (next === undefined) return false;
    this.#fire(next);
    await settle();
    return true;
  }

  #add(callback: () => void, delayMs: number, isSleep: boolean): () => void {
    const id = this.#nextId++;
    this.#timers.set(id, { id, dueMs: this.#nowMs + Math.max(delayMs, 0), callback, isSleep });
    if (this.#auto && isSleep) setImmediate(() => this.#endEarliestSleep());
    return () => {
      this.#timers.delete(id);
    };
  }

  #endEarliestSleep(): void {
    const next = this.#earliest((timer) => timer.isSleep);
    if (next !== undefined) this.#fire(next);
  }

  #earliest(accepts: (timer: Timer) => boolean): Timer | undefined {
    let earliest: Timer | undefined;
    for (const timer of this.#timers.values()) {
      if (accepts(timer) && (earliest === undefined || timer.dueMs < earliest.dueMs)) earliest = timer;
    }
    return earliest;
  }

  #fire(timer: Timer): void {
    this.#timers.delete(timer.id);
    this.#nowMs = Math.max(this.#nowMs, timer.dueMs);
    timer.callback();
  }
}
