import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import { nonNegativeInteger, wrongField, wrongValue } from "../../wire/index.js";
import { permutation } from "../data/permutation.js";

/**
 * Items in order, read by number, and again when a run returns to a checkpoint.
 * - An array repeats without end, shuffled for each epoch by the seed.
 * - A function returns the item of each number, and undefined after the last one.
 * - An iterable that can start again (a `Set`, an object whose `[Symbol.iterator]` makes a new iterator each time) repeats
 *   without end in its order; for items far back it is iterated from the beginning again.
 * - A generator is read once. Its last 65,536 items are remembered; reading older ones is an error. A run that resumes in
 *   another process skips as many items of the new generator as it had read.
 */
export type ItemSource<T> =
  | Iterable<T>
  | AsyncIterable<T>
  | ((index: number) => T | undefined | Promise<T | undefined>);

/** Items that can be read by number, in any order and repeatedly. */
export interface Replay<T> {
  /** Number of items in an epoch, if known. */
  readonly length?: number | undefined;
  /** Returns an item, or undefined after the last one. */
  at(index: number): Promise<T | undefined>;
  close(): Promise<void>;
}

/** Number of items of a one-time iterator that are kept for a run that returns to a checkpoint. */
const MAX_KEPT = 65_536;

/** Makes the items of a source readable by number. */
export function replay<T>(items: ItemSource<T>, { seed, field }: { seed: number; field: string }): Replay<T> {
  nonNegativeInteger.check(seed, "seed");
  if (Array.isArray(items)) return replayArray(items as readonly T[], seed, field);
  if (typeof items === "function") return { at: async (index) => items(index), close: async () => {} };
  if (typeof items === "object" && items !== null) {
    if (Symbol.asyncIterator in items) return new Taken(items, () => items[Symbol.asyncIterator](), field);
    if (Symbol.iterator in items) return new Taken(items, () => items[Symbol.iterator](), field);
  }
  throw wrongValue(field, "a list, an iterable or a function of the number", items);
}

function replayArray<T>(items: readonly T[], seed: number, field: string): Replay<T> {
  const { length } = items;
  if (length === 0) throw wrongField(field, `must not be empty`);
  let shuffled: { readonly epoch: number; readonly order: Uint32Array } | undefined;
  return {
    length,
    at: async (index) => {
      const epoch = Math.floor(index / length);
      if (shuffled?.epoch !== epoch) shuffled = { epoch, order: permutation(length, seed, epoch) };
      return items[shuffled.order[index % length]!];
    },
    close: async () => {},
  };
}

type AnyIterator<T> = Iterator<T> | AsyncIterator<T>;

/** Items of an iterator, read one at a time however many callers wait. */
class Taken<T> implements Replay<T> {
  readonly #iterable: unknown;
  readonly #begin: () => AnyIterator<T>;
  readonly #field: string;
  readonly #kept = new Map<number, T>();
  #iterator: AnyIterator<T> | undefined;
  /** Number of the iterator's next item, counted over all its passes. */
  #next = 0;
  #inThisPass = 0;
  #hasEnded = false;
  #failure: TinkerError | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #isTaking = false;

  constructor(iterable: unknown, begin: () => AnyIterator<T>, field: string) {
    this.#iterable = iterable;
    this.#begin = begin;
    this.#field = field;
  }

  at(index: number): Promise<T | undefined> {
    const taken = this.#turn.then(() => this.#find(index));
    this.#turn = taken.catch(() => {});
    return taken;
  }

  async close(): Promise<void> {
    this.#failure ??= new TinkerError(`${this.#field} is closed.`);
    const ended = Promise.resolve(this.#iterator?.return?.()).catch(() => {});
    // A generator that is running ends only after its current step, which may be never.
    if (!this.#isTaking) await ended;
  }

  async #find(index: number): Promise<T | undefined> {
    if (index < this.#next && !this.#kept.has(index)) await this.#goBack(index);
    while (this.#next <= index && !this.#hasEnded) await this.#take();
    return this.#kept.get(index);
  }

  async #goBack(index: number): Promise<void> {
    const iterator = this.#iterator;
    if (iterator === this.#iterable) {
      throw new TinkerError(
        `${this.#field} was asked for number ${index} again after number ${this.#next - 1}, and of a generator only ` +
          `the last ${MAX_KEPT} are remembered: give a list, or a function of the number.`,
      );
    }
    await iterator?.return?.();
    this.#kept.clear();
    [this.#iterator, this.#next, this.#inThisPass, this.#hasEnded] = [undefined, 0, 0, false];
  }

  async #take(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    this.#isTaking = true;
    try {
      this.#iterator ??= this.#begin();
      const { done, value } = await this.#iterator.next();
      if (done) this.#endPass();
      else this.#keep(value);
    } catch (error) {
      this.#failure = this.#failedAt(error);
      throw this.#failure;
    } finally {
      this.#isTaking = false;
    }
  }

  #failedAt(cause: unknown): TinkerError {
    if (cause instanceof ValidationError) return cause;
    return new TinkerError(`${this.#field} failed at number ${this.#next}: ${messageOf(cause)}`, { cause });
  }

  #keep(value: T): void {
    this.#kept.set(this.#next, value);
    this.#kept.delete(this.#next - MAX_KEPT);
    this.#next += 1;
    this.#inThisPass += 1;
  }

  /** A source that can restart but yields nothing, like a consumed stream, ends like a generator. */
  #endPass(): void {
    if (this.#next === 0) throw new ValidationError(this.#field, `${this.#field} must not be empty`);
    if (this.#iterator === this.#iterable || this.#inThisPass === 0) this.#hasEnded = true;
    else [this.#iterator, this.#inThisPass] = [undefined, 0];
  }
}
