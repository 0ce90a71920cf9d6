import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import { permutation } from "../data/permutation.js";
import { checkWhole } from "../data/rows.js";

/**
 * Things one after the other, which can be asked for by number, and again when a run goes back to a checkpoint.
 * - An array comes in an order of its own in each epoch, which the seed decides, over and over.
 * - A function is asked for each number; it gives undefined behind its last one.
 * - What can be iterated anew (a `Set`, an object whose `[Symbol.iterator]` makes a new iterator each time) comes in its
 *   order, over and over; for what lies far back it is iterated from the beginning again.
 * - A generator comes in its order and ends when it ends. Its last 65,536 things are remembered; asking for older ones
 *   is an error. A run that is resumed in another process takes as many from the new generator as it had taken.
 */
export type InOrder<T> =
  | Iterable<T>
  | AsyncIterable<T>
  | ((index: number) => T | undefined | Promise<T | undefined>);

/** Things that can be asked for by number, in any order and again. */
export interface Replay<T> {
  /** How many make an epoch, where that is known. */
  readonly length?: number | undefined;
  /** Undefined behind the last one. */
  at(index: number): Promise<T | undefined>;
  close(): Promise<void>;
}

/** Of an iterator that cannot begin anew, these many things are remembered for a run that goes back to a checkpoint. */
const MAX_KEPT = 65_536;

/** Makes things askable by number. */
export function replay<T>(things: InOrder<T>, { seed, field }: { seed: number; field: string }): Replay<T> {
  checkWhole("seed", seed, 0);
  if (Array.isArray(things)) return replayArray(things as readonly T[], seed, field);
  if (typeof things === "function") return { at: async (index) => things(index), close: async () => {} };
  if (typeof things === "object" && things !== null) {
    if (Symbol.asyncIterator in things) return new Taken(things, () => things[Symbol.asyncIterator](), field);
    if (Symbol.iterator in things) return new Taken(things, () => things[Symbol.iterator](), field);
  }
  throw wrongValue(field, "a list, an iterable or a function of the number", things);
}

function replayArray<T>(things: readonly T[], seed: number, field: string): Replay<T> {
  const { length } = things;
  if (length === 0) throw new ValidationError(field, `${field} must not be empty`);
  let shuffled: { readonly epoch: number; readonly order: Uint32Array } | undefined;
  return {
    length,
    at: async (index) => {
      const epoch = Math.floor(index / length);
      if (shuffled?.epoch !== epoch) shuffled = { epoch, order: permutation(length, seed, epoch) };
      return things[shuffled.order[index % length]!];
    },
    close: async () => {},
  };
}

type AnyIterator<T> = Iterator<T> | AsyncIterator<T>;

/** What an iterator gives, one at a time however many ask at once. */
class Taken<T> implements Replay<T> {
  readonly #iterable: unknown;
  readonly #begin: () => AnyIterator<T>;
  readonly #field: string;
  readonly #kept = new Map<number, T>();
  #iterator: AnyIterator<T> | undefined;
  /** The number of what the iterator gives next, counted over all its passes. */
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
    // A generator that is busy ends when it is done with what it is about, which may be never.
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

  /** What begins anew but gives nothing, as a stream that was read, ends like a generator. */
  #endPass(): void {
    if (this.#next === 0) throw new ValidationError(this.#field, `${this.#field} must not be empty`);
    if (this.#iterator === this.#iterable || this.#inThisPass === 0) this.#hasEnded = true;
    else [this.#iterator, this.#inThisPass] = [undefined, 0];
  }
}
