import type { Call } from "./route.js";

/** For each owner, the newest. */
const MAX_REMEMBERED = 1000;
const MAX_KEY_CHARACTERS = 256;

/** The key that a client gives to all copies of one request; undefined if it gives none, or one too long to keep. */
export function idempotencyKeyOf(call: Call): string | undefined {
  const key = call.req.header("x-idempotency-key");
  return key !== undefined && key.length <= MAX_KEY_CHARACTERS ? key : undefined;
}

/** Runs what all copies of a request ask for once, for requests that have no number. What failed may run again. */
export class OncePerKey<T> {
  readonly #ofOwners = new Map<string, Map<string, Promise<T>>>();

  run(owner: string, key: string | undefined, start: () => Promise<T>): Promise<T> {
    if (key === undefined) return start();
    const runs = this.#ofOwners.get(owner) ?? new Map<string, Promise<T>>();
    this.#ofOwners.set(owner, runs);
    const before = runs.get(key);
    if (before !== undefined) return before;
    const run = start();
    runs.set(key, run);
    run.catch(() => runs.delete(key));
    if (runs.size > MAX_REMEMBERED) runs.delete(runs.keys().next().value!);
    return run;
  }
}
