import { isSecretHeader, rememberSecret, TinkerError } from "../errors.js";
import type { HeaderValues } from "./types.js";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** The headers of one request: names in lower case. The platform's `Headers` cost several times as much to fill and read. */
export class RequestHeaders implements Iterable<[string, string]> {
  readonly #values: Map<string, string>;

  constructor(others: Iterable<[string, string]> = []) {
    this.#values = new Map(others);
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  has(name: string): boolean {
    return this.#values.has(name.toLowerCase());
  }

  set(name: string, value: string): void {
    // The value stays out of the message: it may be a key.
    if (!NAME.test(name) || typeof value !== "string" || !VALUE.test(value))
      throw new TinkerError(
        `The header "${name}" has a name or value that HTTP does not allow: a value is a text without line breaks.`,
      );
    const trimmed = value.trim();
    if (isSecretHeader(name)) rememberSecret(trimmed.replace(/^(?:Bearer|Basic) +/i, ""));
    this.#values.set(name.toLowerCase(), trimmed);
  }

  delete(name: string): void {
    this.#values.delete(name.toLowerCase());
  }

  /** Lays values over what is there; null removes one. */
  apply(values: HeaderValues | undefined): this {
    if (values === undefined) return this;
    for (const name of Object.keys(values)) {
      const value = values[name];
      if (value === undefined) continue;
      if (value === null) this.delete(name);
      else this.set(name, value);
    }
    return this;
  }

  [Symbol.iterator](): MapIterator<[string, string]> {
    return this.#values.entries();
  }

  /** Name, value, name, value: as undici takes them. */
  flat(): string[] {
    const list: string[] = [];
    this.#values.forEach((value, name) => void list.push(name, value));
    return list;
  }
}
