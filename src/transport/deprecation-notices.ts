import type { Logger } from "./logger.js";

const MOST_REMEMBERED = 100;

/** The service announces in headers what will go away; each notice is logged once. */
export class DeprecationNotices {
  readonly #logger: Logger;
  readonly #seen = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  check(headers: Headers): void {
    const note = headers.get("x-deprecation-note");
    if (note === null || this.#seen.has(note) || this.#seen.size >= MOST_REMEMBERED) return;
    this.#seen.add(note);
    const level = headers.get("x-deprecation-level")?.trim().toLowerCase() === "error" ? "error" : "warn";
    this.#logger[level](`Deprecation notice: ${note}`);
  }
}
