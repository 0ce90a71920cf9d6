import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import { type Message, type Renderer, type TrainOn, textOf, thinkingOf } from "../../renderers/index.js";
import { printPythonJson } from "../../renderers/python-json.js";
import type { Conversation, ReadRow, RowProblem } from "./conversation.js";
import { datumFromExample, toExamples } from "./examples.js";
import type { Rows } from "./rows.js";

/** How rows are looked at. */
export interface CheckOptions {
  /** Without one, characters are counted instead of tokens, and nothing is said about what is learnt. */
  readonly renderer?: Renderer | undefined;
  readonly trainOn: TrainOn;
  readonly maxLength?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/** What one role says in all rows. */
export interface RoleReport {
  readonly role: string;
  readonly messages: number;
  readonly characters: number;
  /** Of what is said, without those that the format adds. */
  readonly tokens?: number;
}

/** Why a row cannot be trained on. */
export interface PlacedProblem extends RowProblem {
  readonly place: string;
}

/** A row that is longer than it may be, and what it loses. */
export interface LongRow {
  readonly place: string;
  readonly tokens: number;
  readonly cutTokens: number;
  /** Of the tokens cut, those that would have been learnt. */
  readonly cutLearntTokens: number;
}

/** What a set of rows holds, and what is wrong with it. */
export interface RowsReport {
  readonly rows: number;
  /** Rows with a problem: training on all of them is not possible. */
  readonly wrongRows: number;
  readonly roles: readonly RoleReport[];
  /** Of an example in tokens where there is a renderer, else of a row in characters. */
  readonly lengths: { readonly p50: number; readonly p95: number; readonly max: number };
  /** With a renderer. Some formats make several examples of a row. */
  readonly examples?: number;
  /** With a renderer: tokens that are read, without those cut, and those of them that are learnt. */
  readonly tokens?: number;
  readonly learntTokens?: number;
  readonly tooLong: readonly LongRow[];
  /** Rows with an answer that says nothing. */
  readonly emptyAnswers: readonly string[];
  readonly duplicates: readonly { readonly place: string; readonly of: string }[];
  readonly problems: readonly PlacedProblem[];
}

const ROWS_AT_ONCE = 256;

/** Reads all rows, and gathers what a person wants to know before training on them. */
export async function checkRows(rows: Rows<ReadRow>, options: CheckOptions): Promise<RowsReport> {
  const check = new RowsCheck(rows, options);
  for (let start = 0; start < rows.length; start += ROWS_AT_ONCE) {
    options.signal?.throwIfAborted();
    const size = Math.min(ROWS_AT_ONCE, rows.length - start);
    const indices = Array.from({ length: size }, (_, index) => start + index);
    for (const [index, row] of (await rows.read(indices)).entries()) check.add(row, start + index);
    options.onProgress?.(start + size, rows.length);
  }
  return check.report();
}

class RowsCheck {
  readonly #rows: Rows<ReadRow>;
  readonly #options: CheckOptions;
  readonly #roles = new Map<string, { messages: number; characters: number; tokens: number }>();
  readonly #lengths: number[] = [];
  readonly #firstOf = new Map<number, number>();
  readonly #tooLong: LongRow[] = [];
  readonly #emptyAnswers: string[] = [];
  readonly #duplicates: { place: string; of: string }[] = [];
  readonly #problems: PlacedProblem[] = [];
  #wrongRows = 0;
  #tokens = 0;
  #learntTokens = 0;

  constructor(rows: Rows<ReadRow>, options: CheckOptions) {
    this.#rows = rows;
    this.#options = options;
  }

  add({ row, problems }: ReadRow, index: number): void {
    const place = this.#rows.place(index);
    const wrong = problems ?? this.#look(row, index, place);
    if (wrong.length > 0) this.#wrongRows += 1;
    for (const problem of wrong) this.#problems.push({ place, ...problem });
  }

  report(): RowsReport {
    const { renderer } = this.#options;
    const sorted = Float64Array.from(this.#lengths).sort();
    const at = (share: number) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
    return {
      rows: this.#rows.length,
      wrongRows: this.#wrongRows,
      ...(renderer && {
        examples: this.#lengths.length,
        tokens: this.#tokens,
        learntTokens: this.#learntTokens,
      }),
      lengths: { p50: at(0.5), p95: at(0.95), max: at(1) },
      roles: [...this.#roles].map(([role, { tokens, ...counts }]) => ({
        role,
        ...counts,
        ...(renderer && { tokens }),
      })),
      tooLong: this.#tooLong,
      emptyAnswers: this.#emptyAnswers,
      duplicates: this.#duplicates,
      problems: this.#problems,
    };
  }

  #look(conversation: Conversation, index: number, place: string): readonly RowProblem[] {
    const { messages } = conversation;
    for (const message of messages) this.#count(message);
    if (messages.some(isEmptyAnswer)) this.#emptyAnswers.push(place);
    const hash = hashOf(printPythonJson([messages, conversation.tools ?? []]));
    const first = this.#firstOf.get(hash);
    if (first === undefined) this.#firstOf.set(hash, index);
    else this.#duplicates.push({ place, of: this.#rows.place(first) });
    const { renderer } = this.#options;
    if (renderer !== undefined) return this.#render(conversation, renderer, place);
    this.#lengths.push(messages.reduce((sum, message) => sum + saidBy(message).length, 0));
    return [];
  }

  #count(message: Message): void {
    const said = saidBy(message);
    const counts = this.#roles.get(message.role) ?? { messages: 0, characters: 0, tokens: 0 };
    counts.messages += 1;
    counts.characters += said.length;
    counts.tokens += this.#options.renderer?.tokenizer.encode(said, { addSpecialTokens: false }).length ?? 0;
    this.#roles.set(message.role, counts);
  }

  #render(conversation: Conversation, renderer: Renderer, place: string): readonly RowProblem[] {
    const { trainOn, maxLength } = this.#options;
    let learnt = 0;
    const long = { tokens: 0, cutTokens: 0, cutLearntTokens: 0 };
    try {
      for (const example of toExamples(conversation, renderer, trainOn)) {
        const { length } = example.input;
        const datum = datumFromExample(example, { maxLength });
        const kept =
          datum === undefined ? Math.min(length, maxLength ?? length) : datum.modelInput.length + 1;
        const learntBefore = (end: number) =>
          example.weights.subarray(1, end).filter((weight) => weight > 0).length;
        learnt += learntBefore(kept);
        long.tokens = Math.max(long.tokens, length);
        long.cutTokens += length - kept;
        long.cutLearntTokens += learntBefore(length) - learntBefore(kept);
        this.#lengths.push(length);
        this.#tokens += kept;
      }
    } catch (error) {
      if (!(error instanceof TinkerError))
        throw new TinkerError(`${place}: ${messageOf(error)}`, { cause: error });
      return [{ field: error instanceof ValidationError ? error.field : "", message: error.message }];
    }
    this.#learntTokens += learnt;
    if (maxLength !== undefined && long.tokens > maxLength) this.#tooLong.push({ place, ...long });
    if (learnt > 0) return [];
    const message =
      long.cutLearntTokens > 0
        ? `all that would be learnt lies behind the first ${maxLength} of ${long.tokens} tokens`
        : `nothing is learnt from this row by ${trainOn}`;
    return [{ field: "messages", message }];
  }
}

/** All that a message says, and that a model may read. */
function saidBy(message: Message): string {
  const calls = message.toolCalls ?? [];
  return thinkingOf(message) + textOf(message) + calls.map((call) => call.name + call.arguments).join("");
}

function isEmptyAnswer(message: Message): boolean {
  return (
    message.role === "assistant" && textOf(message).trim() === "" && (message.toolCalls ?? []).length === 0
  );
}

/** 53 bits of a text, so that millions of rows can be told apart without keeping them: cyrb53. */
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
