/** Stops a thread before it is ended: one flag requests it, another confirms it. */
export type Standstill = Int32Array<SharedArrayBuffer>;

const [WANTED, DONE] = [0, 1];
/** A step that takes longer is met in the middle. */
const MAX_WAIT_MS = 5_000;

/** Shared by two threads. */
export function newStandstill(): Standstill {
  return new Int32Array(new SharedArrayBuffer(8));
}

/** Blocks until the other thread stands still, or for a while. */
export function awaitStandstill(standstill: Standstill): void {
  Atomics.store(standstill, WANTED, 1);
  Atomics.wait(standstill, DONE, 0, MAX_WAIT_MS);
}

/** Blocks forever if requested. */
export function standStillIfAsked(standstill: Standstill): void {
  if (Atomics.load(standstill, WANTED) === 0) return;
  Atomics.store(standstill, DONE, 1);
  Atomics.notify(standstill, DONE);
  Atomics.wait(standstill, DONE, 1);
}
