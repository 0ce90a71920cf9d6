import { printPythonJson } from "../../renderers/python-json.js";
import type { Conversation } from "./conversation.js";

/** A row for evaluation whose question is also in the rows that are trained on. */
export interface OverlappingRow {
  readonly place: string;
  readonly of: string;
  /** Whether the answer is the same too. */
  readonly sameAnswer: boolean;
}

/** Where a row stands, and whether it is for evaluation. */
export interface PlacedRow {
  readonly place: string;
  readonly isTest: boolean;
}

/** More rows than this are not compared with one another. */
const MAX_COMPARED_ROWS = 2_000_000;

/** Finds rows that are there twice, and questions that are both trained on and evaluated on. */
export class RepeatedRows {
  readonly duplicates: { place: string; of: string }[] = [];
  /** By the hash of a whole row, where it stands first. */
  readonly #firstOf = new Map<number, string>();
  /** By the hash of a question that is trained on, where it stands first and the hash of that whole row. */
  readonly #asked = new Map<number, { readonly place: string; readonly whole: number }>();
  readonly #tested: { readonly place: string; readonly question: number; readonly whole: number }[] = [];
  /** Number of rows that were compared with one another. */
  compared = 0;

  /** Rows for evaluation that are also trained on, by their questions. */
  overlap(): readonly OverlappingRow[] {
    return this.#tested.flatMap(({ place, question, whole }) => {
      const trained = this.#asked.get(question);
      return trained === undefined ? [] : [{ place, of: trained.place, sameAnswer: trained.whole === whole }];
    });
  }

  add({ messages, tools = [] }: Conversation, { place, isTest }: PlacedRow): void {
    if (this.compared === MAX_COMPARED_ROWS) return;
    this.compared += 1;
    const whole = hashOf(printPythonJson([messages, tools]));
    const first = this.#firstOf.get(whole);
    if (first === undefined) this.#firstOf.set(whole, place);
    else this.duplicates.push({ place, of: first });
    const last = messages.findLastIndex(({ role }) => role === "assistant");
    const question = hashOf(printPythonJson(messages.slice(0, last === -1 ? undefined : last)));
    if (isTest) this.#tested.push({ place, question, whole });
    else if (!this.#asked.has(question)) this.#asked.set(question, { place, whole });
  }
}

/** A hash of 53 bits (cyrb53), to find equal rows among millions without keeping them. */
function hashOf(text: string): number {
  let first = 0xdeadbeef;
  let second = 0x41c6ce57;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    first = Math.imul(first ^ unit, 2654435761);
    second = Math.imul(second ^ unit, 1597334677);
  }
  first = Math.imul(first ^ (first >>> 16), 2246822507) ^ Math.imul(second ^ (second >>> 13), 3266489909);
  second = Math.imul(second ^ (second >>> 16), 2246822507) ^ Math.imul(first ^ (first >>> 13), 3266489909);
  return 4294967296 * (2097151 & second) + (first >>> 0);
}
