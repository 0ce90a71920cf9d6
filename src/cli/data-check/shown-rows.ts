import type { ReadRow } from "../../cookbook/data/conversation.js";
import { toExamples } from "../../cookbook/data/examples.js";
import type { Rows } from "../../cookbook/data/rows.js";
import { TinkerError } from "../../errors.js";
import type { Renderer, SupervisedExample, TrainOn } from "../../renderers/index.js";
import { chunkLength } from "../../wire/index.js";
import type { CommandContext } from "../context.js";
import { printable, printableLines, type Styles, stylesFor } from "../output/index.js";

interface ShowOptions {
  readonly renderer: Renderer;
  readonly trainOn: TrainOn;
  readonly maxLength: number | undefined;
  /** The first rows that can be shown. */
  readonly count: number;
}

/** Long texts are shortened to their beginning and end. */
const MAX_SHOWN_CHARACTERS = 600;

/** Prints rows as the model reads them: trained tokens are green, or in brackets without colours. */
export async function showRows(
  context: CommandContext,
  rows: Rows<ReadRow>,
  { renderer, trainOn, maxLength, count }: ShowOptions,
): Promise<void> {
  const styles = stylesFor(context, context.stdout);
  for (let index = 0, shown = 0; index < rows.length && shown < count; index += 1) {
    const examples = examplesOf((await rows.read([index]))[0]!, renderer, trainOn);
    if (examples.length === 0) continue;
    shown += 1;
    for (const [number, example] of examples.entries()) {
      const part = examples.length === 1 ? "" : `, example ${number + 1} of ${examples.length}`;
      context.stdout.write(`${styles.bold(printable(rows.place(index)) + part)}\n`);
      context.stdout.write(`${marked(example, renderer, maxLength, styles)}\n\n`);
    }
  }
}

function examplesOf({ row }: ReadRow, renderer: Renderer, trainOn: TrainOn): readonly SupervisedExample[] {
  if (row === undefined) return [];
  try {
    return toExamples(row, renderer, trainOn);
  } catch (error) {
    // The row is listed with the problems.
    if (error instanceof TinkerError) return [];
    throw error;
  }
}

function marked(
  { input, weights }: SupervisedExample,
  { tokenizer }: Renderer,
  maxLength = Number.POSITIVE_INFINITY,
  { green, dim, red }: Styles,
): string {
  const trained = green("") === "" ? (text: string) => `⟦${text}⟧` : green;
  const pieces: string[] = [];
  let position = 0;
  for (const chunk of input.chunks) {
    const start = position;
    position += chunkLength(chunk);
    if (chunk.type !== "encoded_text") {
      if (position <= maxLength) pieces.push(dim(`(image, ${position - start} tokens)`));
      continue;
    }
    for (const [from, to] of evenRuns(weights, start, Math.min(position, maxLength))) {
      const tokens = chunk.tokens.subarray(from - start, to - start);
      const text = printableLines(shortened(tokenizer.decode(tokens)));
      pieces.push(weights[from]! > 0 ? trained(text) : text);
    }
  }
  if (position > maxLength) pieces.push(red(` (${position - maxLength} tokens cut)`));
  return pieces.join("");
}

/** Runs of neighbouring tokens that are all trained or all untrained: their beginnings and ends. */
function* evenRuns(weights: Float32Array, start: number, end: number): Generator<[number, number]> {
  let from = start;
  for (let position = start + 1; position <= end; position += 1) {
    if (position < end && weights[position]! > 0 === weights[from]! > 0) continue;
    yield [from, position];
    from = position;
  }
}

function shortened(text: string): string {
  if (text.length <= MAX_SHOWN_CHARACTERS) return text;
  const half = MAX_SHOWN_CHARACTERS / 2;
  return `${text.slice(0, half)} … ${text.slice(-half)}`;
}
