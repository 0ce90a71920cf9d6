import type { Logger } from "./logger.js";
import type { Answer } from "./sender.js";

const MOST_REMEMBERED = 100;

/** The service announces in headers what will go away; each notice is logged once. */
export class DeprecationNotices {
  readonly #logger: Logger;
  readonly #seen = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  check(answer: Answer): void {
    const note = answer.header("x-deprecation-note");
    if (note === null || this.#seen.has(note) || this.#seen.size >= MOST_REMEMBERED) return;
    this.#seen.add(note);
    const level = answer.header("x-deprecation-level")?.trim().toLowerCase() === "error" ? "error" : "warn";
    this.#logger[level](`Deprecation notice: ${note}`);
  }
}
