import { EngineInputError } from "../../engine.js";

/** A place in a schema is shown up to this length: names in it may be as long as a request. */
const MAX_SHOWN_PLACE = 200;

/** The place of a mistake in a schema. */
export function refuse(path: string, problem: string): never {
  const place = path.length > MAX_SHOWN_PLACE ? `${path.slice(0, MAX_SHOWN_PLACE)}...` : path;
  throw new EngineInputError(`${REFUSAL}${place}: ${problem}`);
}

const REFUSAL = "JSON schema, ";

/** Whether an error's message is about the schema of a request. */
export function isSchemaRefusal(message: string): boolean {
  return message.startsWith(REFUSAL);
}

/** Whether such a message is about the schema of a tool. */
export function isToolRefusal(message: string): boolean {
  return message.startsWith(`${REFUSAL}${TOOL_PLACE}`);
}

/** Where the arguments of a tool are described. */
export const TOOL_PLACE = "tool ";

/** Work that a schema may cause; it is counted before it is done, and a schema that needs more is refused. */
export class Steps {
  readonly #most: number;
  readonly #work: string;
  #left: number;

  /** `work`: for the refusal, such as "building its grammar". */
  constructor(most: number, work: string) {
    this.#most = most;
    this.#work = work;
    this.#left = most;
  }

  /** Counts steps for a keyword at a place of the schema. */
  take(count: number, path = "#", keyword?: string): void {
    this.#left -= count;
    if (this.#left < 0) {
      const named = keyword === undefined ? "" : `"${keyword}" is too large: `;
      refuse(path, `${named}${this.#work} takes more than ${this.#most} steps; make the schema simpler`);
    }
  }

  /** Allows as many steps as at the beginning. */
  restart(): void {
    this.#left = this.#most;
  }

  /** Steps taken so far. */
  get taken(): number {
    return this.#most - this.#left;
  }
}
