import { type I32, type Kernels, partsOf, type RowSpan, sliceBuffer } from "../kernels/kernels.js";
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
  const layout = layOut(sequences, rows);
  const { pagesPerRow, maxLength, spans, questions } = layout;
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
  const shape = attentionShape(config);
  const { output } = decoderForward(kernels, model, {
    rows,
    tokens,
    positions,
    zeros,
    maxLength,
    adapters: adapterSpans(sequences, (sequence) => sequence.count),
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
    activations: reusedActivations(kernels, config, rows),
  });

  const count = logitRows.length;
  const logits = kernels.scratch(count * config.vocabSize);
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
  return { questions, logits, vocabSize: config.vocabSize, targets, targetsPerRow: asked.targetsPerRow };
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

function layOut(sequences: SequenceRows[], rows: number) {
  const pagesPerRow = Math.max(...sequences.map(({ pages }) => pages.length));
  const tokens = new Int32Array(rows);
  const positions = new Int32Array(rows);
  const slots = new Int32Array(rows);
  const zeros = new Int32Array(rows);
  const lengths = new Int32Array(rows);
  const pageTables = new Int32Array(rows * pagesPerRow);
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
  };
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
