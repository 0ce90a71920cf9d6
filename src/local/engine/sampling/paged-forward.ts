import { type F32, type I32, type Kernels, partsOf, type RowSpan, sliceBuffer } from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import {
  type AdapterSpan,
  adaptersOf,
  attentionShape,
  decoderForward,
  finalNorm,
  reusedActivations,
  scratchInts,
  takeRows,
} from "../model/decoder.js";
import { linearForward } from "../model/linear.js";
import type { LoraWeights } from "../model/lora.js";
import { fewRowForward, fittingKernels } from "./few-row-forward.js";
import { type LogitQuestion, type LogitRows, targetTable } from "./logit-answers.js";
import { PAGE_SIZE, type PagePool } from "./page-pool.js";

/** Consecutive rows of one sequence. */
export interface SequenceRows {
  lora: LoraWeights | undefined;
  pages: number[];
  tokens: ArrayLike<number>;
  /** Positions start..start+count of `tokens` are computed; everything before is in the pages already. */
  start: number;
  count: number;
  /** One for each of the last rows; the others get no logits. */
  questions: LogitQuestion[];
}

/**
 * The decoder over rows of many sequences and adapters, with keys and values in pages and without a backward pass.
 * Sequences with the same adapter must be next to each other. The result lives on the scratch stack.
 */
export function pagedForward(
  kernels: Kernels,
  model: BaseModel,
  pool: PagePool,
  sequences: SequenceRows[],
): LogitRows {
  const { config, weights } = model;
  const rows = sequences.reduce((sum, sequence) => sum + sequence.count, 0);
  const room = roomForRows(kernels, rows);
  const layout = layOut(sequences, room);
  const { pagesPerRow, maxLength, spans, questions, isLastTokens } = layout;
  const asked = targetTable(questions);
  const [tokens, positions, zeros, slots, lengths, pageTables, logitRows, targets] = uploadTables(kernels, [
    layout.tokens,
    layout.positions,
    layout.zeros,
    layout.slots,
    layout.lengths,
    layout.pageTables,
    layout.logitRows,
    asked.targets,
  ]);
  const adapters = adapterSpans(sequences, (sequence) => sequence.count);
  const asLogits = (logits: F32) => {
    return { questions, logits, vocabSize: config.vocabSize, targets, targetsPerRow: asked.targetsPerRow };
  };
  const fewRows = isLastTokens && fittingKernels(kernels, model, adapters);
  if (fewRows) {
    const logits = kernels.scratch(roomForLogits(kernels, rows, config.vocabSize));
    const paged = { positions, slots, lengths, pageTables, pagesPerRow, pageSize: PAGE_SIZE };
    const tables = { ...paged, tokens, maxLength };
    fewRowForward(kernels, fewRows, model, pool, { spans: adapters, tables, logits });
    return asLogits(logits);
  }

  const shape = attentionShape(config);
  const { output } = decoderForward(kernels, model, {
    rows,
    room,
    tokens,
    positions,
    zeros,
    maxLength,
    adapters,
    attend: (layer, { attended, query, projected }, rotation) => {
      const [keyPages, valuePages] = [pool.keys(layer), pool.values(layer)];
      kernels.rotateIntoPages({ query, keyPages, valuePages, slots, projected, rotation });
      kernels.attentionPaged({
        out: attended,
        query,
        keyPages,
        valuePages,
        pageTables,
        lengths,
        rows,
        pagesPerRow,
        pageSize: PAGE_SIZE,
        shape,
        spans,
      });
    },
    activations: reusedActivations(kernels, config, room),
  });

  const count = logitRows.length;
  const logits = kernels.scratch(roomForLogits(kernels, count, config.vocabSize));
  if (count > 0) {
    linearForward(kernels, {
      layer: weights.head,
      out: logits,
      x: finalNorm(kernels, model, takeRows(kernels, output, logitRows, config.hiddenSize), count).hidden,
      rows: count,
      adapters: adaptersOf(
        adapterSpans(sequences, ({ questions }) => questions.length),
        (lora) => lora.head,
      ),
    });
  }
  return asLogits(logits);
}

/** All tables in one upload: each is a trip to the device. */
function uploadTables<Tables extends Int32Array[]>(
  kernels: Kernels,
  tables: [...Tables],
): { [Table in keyof Tables]: I32 } {
  const { starts, length } = partsOf(tables.map((table) => table.length));
  const all = new Int32Array(length);
  tables.forEach((table, index) => {
    all.set(table, starts[index]);
  });
  const buffer = scratchInts(kernels, all);
  return tables.map((table, index) => sliceBuffer(buffer, starts[index]!, table.length)) as {
    [Table in keyof Tables]: I32;
  };
}

function layOut(sequences: SequenceRows[], room: number) {
  const pagesPerRow = Math.max(...sequences.map(({ pages }) => pages.length));
  const [tokens, positions, slots] = [new Int32Array(room), new Int32Array(room), new Int32Array(room)];
  const [zeros, lengths] = [new Int32Array(room), new Int32Array(room)];
  const pageTables = new Int32Array(roomFor(room * pagesPerRow, MIN_TABLE));
  const logitRows: number[] = [];
  const questions: LogitQuestion[] = [];
  const spans: RowSpan[] = [];
  let row = 0;
  let maxLength = 0;
  for (const { pages, tokens: all, start, count, questions: ofSequence } of sequences) {
    if (count > 1) spans.push({ start: row, rows: count });
    for (let position = start; position < start + count; position++, row++) {
      tokens[row] = all[position]!;
      positions[row] = position;
      slots[row] = pages[Math.floor(position / PAGE_SIZE)]! * PAGE_SIZE + (position % PAGE_SIZE);
      lengths[row] = position + 1;
      for (let page = 0; page < pages.length; page++) pageTables[row * pagesPerRow + page] = pages[page]!;
      if (position >= start + count - ofSequence.length) logitRows.push(row);
    }
    for (const question of ofSequence) questions.push(question);
    maxLength = Math.max(maxLength, start + count);
  }
  return {
    pagesPerRow,
    tokens,
    positions,
    zeros,
    slots,
    lengths,
    pageTables,
    maxLength,
    spans,
    questions,
    logitRows: Int32Array.from(logitRows),
    /** Each row is the last one of a sequence of its own, and is asked about. */
    isLastTokens: sequences.every(({ count, questions }) => count === 1 && questions.length === 1),
  };
}

/** Buffers grow in large steps: while they have their sizes and places, what a GPU has prepared for one step serves the next. */
const roomFor = (count: number, least: number) => Math.max(least, 2 ** Math.ceil(Math.log2(count)));
const MIN_TABLE = 1024;
/** With more rows than that, computing takes longer than preparing. */
const MAX_ROUNDED_ROWS = 256;

/** The rounding must not make a buffer too large. */
function roomForLogits(kernels: Kernels, rows: number, vocabSize: number): number {
  const length = roomForRows(kernels, rows) * vocabSize;
  const { maxBufferBytes = Number.POSITIVE_INFINITY } = kernels;
  return 4 * length <= maxBufferBytes ? length : rows * vocabSize;
}

function roomForRows({ fewRows }: Kernels, rows: number): number {
  return fewRows && rows > 0 && rows <= MAX_ROUNDED_ROWS ? roomFor(rows, fewRows.maxRows) : rows;
}

/** Neighbours with the same adapter, and where the rows that `rowsOf` counts begin. */
function adapterSpans(sequences: SequenceRows[], rowsOf: (sequence: SequenceRows) => number): AdapterSpan[] {
  const spans: AdapterSpan[] = [];
  let start = 0;
  for (const sequence of sequences) {
    const rows = rowsOf(sequence);
    const last = spans.at(-1);
    if (last && last.lora === sequence.lora) last.rows += rows;
    else spans.push({ lora: sequence.lora, start, rows });
    start += rows;
  }
  return spans;
}
