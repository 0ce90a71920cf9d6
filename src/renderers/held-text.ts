import { beginningOf } from "../tokenizers/sample-text.js";
import { firstOf } from "./stream-parser.js";

/** Text as it comes, up to one of some signs; what may be the beginning of a sign is held back. */
export class HeldText {
  readonly #signs: readonly string[];
  #held = "";
  #isFound = false;

  constructor(signs: readonly string[]) {
    this.#signs = signs;
  }

  /** Whether a sign has come. */
  get isFound(): boolean {
    return this.#isFound;
  }

  /** What was held back: from the sign on where it has come. */
  get rest(): string {
    return this.#held;
  }

  /** Takes more text, and gives what certainly stands before every sign. */
  push(text: string): string {
    this.#held += text;
    if (this.#isFound) return "";
    const found = firstOf(this.#signs, this.#held);
    this.#isFound = found !== undefined;
    const certain = found?.start ?? this.#held.length - beginningOf(this.#signs, this.#held);
    const given = this.#held.slice(0, certain);
    this.#held = this.#held.slice(certain);
    return given;
  }
}
