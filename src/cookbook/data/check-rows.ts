import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import { type Message, type Renderer, type TrainOn, textOf, thinkingOf } from "../../renderers/index.js";
import type { Conversation, ReadRow, RowFormat, RowProblem } from "./conversation.js";
import { datumFromExample, toExamples } from "./examples.js";
import { type OverlappingRow, type PlacedRow, RepeatedRows } from "./repeated-rows.js";
import { roleProblems } from "./roles.js";
import { placesOf, type Rows } from "./rows.js";

/** Options of a check of rows. */
export interface CheckOptions {
  /** Without a renderer, characters are counted instead of tokens, and trained tokens are not counted. */
  readonly renderer?: Renderer | undefined;
  readonly trainOn: TrainOn;
  readonly maxLength?: number | undefined;
  /** Positions of the rows that are held out for evaluation. */
  readonly heldOut?: ReadonlySet<number> | undefined;
  /** Other rows for evaluation. */
  readonly testRows?: Rows<ReadRow> | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/** Counts of one role in all rows. */
export interface RoleReport {
  readonly role: string;
  readonly messages: number;
  readonly characters: number;
  /** Tokens of the contents, without those that the format adds. */
  readonly tokens?: number;
}

/** Why a row cannot be used for training. */
export interface PlacedProblem extends RowProblem {
  readonly place: string;
}

/** A row longer than the limit, and the tokens it loses. */
export interface LongRow {
  readonly place: string;
  readonly tokens: number;
  readonly cutTokens: number;
  /** Number of trained tokens that are cut off. */
  readonly cutTrainedTokens: number;
}

/** Number of examples of some lengths, both bounds included. */
export interface LengthRange {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** Counts and problems of a set of rows. */
export interface RowsReport {
  readonly rows: number;
  /** Rows for evaluation: those held out, or those of other files. */
  readonly testRows: number;
  /** Number of rows in each format. */
  readonly formats: Readonly<Partial<Record<RowFormat, number>>>;
  /** Rows with a problem; training needs all rows to be without one. */
  readonly wrongRows: number;
  readonly roles: readonly RoleReport[];
  /** Lengths of examples in tokens, or of rows in characters if there is no renderer. */
  readonly lengths: { readonly p50: number; readonly p95: number; readonly max: number };
  /** How many examples have which length, by powers of two. */
  readonly histogram: readonly LengthRange[];
  /** Number of examples, with a renderer. Some formats make several examples of a row. */
  readonly examples?: number;
  /** Tokens within the length limit, and the trained tokens among them, with a renderer. */
  readonly tokens?: number;
  readonly trainedTokens?: number;
  readonly tooLong: readonly LongRow[];
  /** Rows with an empty answer. */
  readonly emptyAnswers: readonly string[];
  /** Rows that were compared with one another: all that can be read, up to two million. */
  readonly comparedRows: number;
  readonly duplicates: readonly { readonly place: string; readonly of: string }[];
  readonly overlap: readonly OverlappingRow[];
  readonly problems: readonly PlacedProblem[];
}

const ROWS_AT_ONCE = 256;

/** Reads all rows and counts what is useful to know before training on them. */
export async function checkRows(rows: Rows<ReadRow>, options: CheckOptions): Promise<RowsReport> {
  const { heldOut, testRows, signal, onProgress } = options;
  const check = new RowsCheck(options);
  const total = rows.length + (testRows?.length ?? 0);
  const readPart = async (part: Rows<ReadRow>, isTest: (index: number) => boolean, before: number) => {
    for (const places of placesOf(part, ROWS_AT_ONCE)) {
      signal?.throwIfAborted();
      for (const [order, row] of (await part.read(places)).entries()) {
        const index = places[order]!;
        check.add(row, { place: part.place(index), isTest: isTest(index) });
      }
      onProgress?.(before + places.at(-1)! + 1, total);
    }
  };
  await readPart(rows, (index) => heldOut?.has(index) === true, 0);
  if (testRows !== undefined) await readPart(testRows, () => true, rows.length);
  return check.report();
}

class RowsCheck {
  readonly #options: CheckOptions;
  readonly #formats: Partial<Record<RowFormat, number>> = {};
  readonly #roles = new Map<string, { messages: number; characters: number; tokens: number }>();
  readonly #lengths: number[] = [];
  readonly #repeated = new RepeatedRows();
  readonly #tooLong: LongRow[] = [];
  readonly #emptyAnswers: string[] = [];
  readonly #problems: PlacedProblem[] = [];
  #rows = 0;
  #testRows = 0;
  #wrongRows = 0;
  #tokens = 0;
  #trainedTokens = 0;

  constructor(options: CheckOptions) {
    this.#options = options;
  }

  add({ row, problems, format }: ReadRow, placed: PlacedRow): void {
    const { place, isTest } = placed;
    this.#rows += 1;
    if (isTest) this.#testRows += 1;
    if (format !== undefined) this.#formats[format] = (this.#formats[format] ?? 0) + 1;
    const wrong = problems ?? this.#look(row, placed);
    if (wrong.length > 0) this.#wrongRows += 1;
    for (const problem of wrong) this.#problems.push({ place, ...problem });
  }

  report(): RowsReport {
    const { renderer } = this.#options;
    const sorted = Float64Array.from(this.#lengths).sort();
    const at = (share: number) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
    return {
      rows: this.#rows,
      testRows: this.#testRows,
      formats: this.#formats,
      wrongRows: this.#wrongRows,
      ...(renderer && {
        examples: this.#lengths.length,
        tokens: this.#tokens,
        trainedTokens: this.#trainedTokens,
      }),
      lengths: { p50: at(0.5), p95: at(0.95), max: at(1) },
      histogram: histogramOf(sorted),
      roles: [...this.#roles].map(([role, { tokens, ...counts }]) => ({
        role,
        ...counts,
        ...(renderer && { tokens }),
      })),
      tooLong: this.#tooLong,
      emptyAnswers: this.#emptyAnswers,
      comparedRows: this.#repeated.compared,
      duplicates: this.#repeated.duplicates,
      overlap: this.#repeated.overlap(),
      problems: this.#problems,
    };
  }

  #look(conversation: Conversation, placed: PlacedRow): readonly RowProblem[] {
    const { messages } = conversation;
    const { place } = placed;
    for (const message of messages) this.#count(message);
    if (messages.some(isEmptyAnswer)) this.#emptyAnswers.push(place);
    this.#repeated.add(conversation, placed);
    const { renderer } = this.#options;
    const wrongRoles = roleProblems(messages, renderer);
    if (wrongRoles.length > 0) return wrongRoles;
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
    let trained = 0;
    const long = { tokens: 0, cutTokens: 0, cutTrainedTokens: 0 };
    try {
      for (const example of toExamples(conversation, renderer, trainOn)) {
        const { length } = example.input;
        const datum = datumFromExample(example, { maxLength });
        const kept =
          datum === undefined ? Math.min(length, maxLength ?? length) : datum.modelInput.length + 1;
        const trainedBefore = (end: number) =>
          example.weights.subarray(1, end).filter((weight) => weight > 0).length;
        trained += trainedBefore(kept);
        long.tokens = Math.max(long.tokens, length);
        long.cutTokens += length - kept;
        long.cutTrainedTokens += trainedBefore(length) - trainedBefore(kept);
        this.#lengths.push(length);
        this.#tokens += kept;
      }
    } catch (error) {
      if (!(error instanceof TinkerError))
        throw new TinkerError(`${place}: ${messageOf(error)}`, { cause: error });
      return [{ field: error instanceof ValidationError ? error.field : "", message: error.message }];
    }
    this.#trainedTokens += trained;
    if (maxLength !== undefined && long.tokens > maxLength) this.#tooLong.push({ place, ...long });
    if (trained > 0) return [];
    const message =
      long.cutTrainedTokens > 0
        ? `all its trained tokens come after the first ${maxLength} of ${long.tokens} tokens`
        : `this row has no trained tokens with ${trainOn}`;
    return [{ field: "messages", message }];
  }
}

/** Numbers of lengths from one power of two to below the next. */
function histogramOf(sorted: Float64Array): readonly LengthRange[] {
  const counts: number[] = [];
  for (const length of sorted) {
    const bits = length === 0 ? 0 : Math.floor(Math.log2(length)) + 1;
    counts[bits] = (counts[bits] ?? 0) + 1;
  }
  const ranges = Array.from(counts, (count = 0, bits) => {
    return { from: bits === 0 ? 0 : 2 ** (bits - 1), to: Math.max(0, 2 ** bits - 1), count };
  });
  return ranges.slice(
    Math.max(
      0,
      ranges.findIndex(({ count }) => count > 0),
    ),
  );
}

/** All text of a message that a model may read. */
function saidBy(message: Message): string {
  const calls = message.toolCalls ?? [];
  return thinkingOf(message) + textOf(message) + calls.map((call) => call.name + call.arguments).join("");
}

function isEmptyAnswer(message: Message): boolean {
  return (
    message.role === "assistant" && textOf(message).trim() === "" && (message.toolCalls ?? []).length === 0
  );
}
