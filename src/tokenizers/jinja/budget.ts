import { TinkerError } from "../../errors.js";

/** Limits of one rendering. A conversation of a thousand messages takes some hundred thousand steps. */
const MAX_STEPS = 500_000;
const MAX_MS = 5_000;
const STEPS_BETWEEN_LOOKS = 4096;
/** Characters of a text that cost a step, each time the text is used. */
const CHARACTERS_PER_STEP = 256;
/** Pieces of a text that cost a step. */
const PIECES_PER_STEP = 16;
const MAX_CHARACTERS = 16 * 2 ** 20;
const MAX_VALUES = 2 ** 20;

let taken = 0;

/** Steps of all renderings in this thread so far: the difference of two readings is the work between them. */
export const stepsTaken = (): number => taken;

/** An error for a template that goes beyond its budget. */
export const beyond = (what: string) => new TinkerError(`the template ${what}`);

/** Counts the work of one rendering before it is done; a template that needs more ends with an error. */
export class Budget {
  readonly #endMs = performance.now() + MAX_MS;
  #steps = 0;
  #nextLook = STEPS_BETWEEN_LOOKS;

  step(count = 1): void {
    this.#steps += count;
    taken += count;
    if (this.#steps > MAX_STEPS) throw beyond(`takes more than ${MAX_STEPS} steps`);
    if (this.#steps < this.#nextLook) return;
    this.#nextLook = this.#steps + STEPS_BETWEEN_LOOKS;
    if (performance.now() > this.#endMs) throw beyond(`takes longer than ${MAX_MS / 1000} s`);
  }

  /** Refuses a text that would be too long. */
  checkLength(length: number): void {
    if (!(length <= MAX_CHARACTERS)) throw beyond(`writes more than ${MAX_CHARACTERS} characters`);
  }

  /** Counts a text that is about to be made or used. */
  characters(length: number): void {
    this.checkLength(length);
    this.step(length / CHARACTERS_PER_STEP);
  }

  /** Counts the pieces into which a text is cut. */
  pieces(count: number): void {
    this.step(count / PIECES_PER_STEP);
  }

  /** Counts a list that is about to be made or walked. */
  values(count: number): void {
    if (!(count <= MAX_VALUES))
      throw beyond(`makes a list of ${count} values; at most ${MAX_VALUES} are allowed`);
    this.step(count);
  }
}
