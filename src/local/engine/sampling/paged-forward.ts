import type { F32, Kernels } from "../kernels/kernels.js";
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
import { PAGE_SIZE, type PagePool } from "./page-pool.js";

/** Consecutive rows of one sequence. */
export interface SequenceRows {
  lora: LoraWeights | undefined;
  pages: number[];
  tokens: ArrayLike<number>;
  /** Positions start..start+count of `tokens` are computed; everything before is in the pages already. */
  start: number;
  count: number;
  /** Of these rows, the ones from here on get logits. */
  logitsFrom: number;
}

/** How many of its rows get logits. */
export const logitRowsOf = ({ start, count, logitsFrom }: SequenceRows) =>
  Math.max(0, start + count - Math.max(start, logitsFrom));

/** The logits of the rows that were asked for, in order. */
export interface LogitRows {
  logits: F32;
  logSumExp: F32;
  rows: number;
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
  const { pagesPerRow } = layout;
  const slots = scratchInts(kernels, layout.slots);
  const pageTables = scratchInts(kernels, layout.pageTables);
  const lengths = scratchInts(kernels, layout.lengths);
  const shape = attentionShape(config);
  const keyWidth = shape.kvHeads * shape.headDim;
  const { output } = decoderForward(kernels, model, {
    rows,
    tokens: scratchInts(kernels, layout.tokens),
    positions: scratchInts(kernels, layout.positions),
    zeros: scratchInts(kernels, new Int32Array(rows)),
    maxLength: layout.maxLength,
    adapters: adapterSpans(sequences, (sequence) => sequence.count),
    attend: (layer, { attended, query, key, projected }) => {
      const [keyPages, valuePages] = [pool.keys(layer), pool.values(layer)];
      kernels.scatterRows(keyPages, key, slots, rows, keyWidth);
      kernels.scatterRows(valuePages, projected.value, slots, rows, keyWidth);
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
      });
    },
    activations: reusedActivations(kernels, config, rows),
  });

  const count = layout.logitRows.length;
  const logits = kernels.scratch(count * config.vocabSize);
  const logSumExp = kernels.scratch(count);
  if (count > 0) {
    const wanted = takeRows(kernels, output, scratchInts(kernels, layout.logitRows), config.hiddenSize);
    linearForward(kernels, {
      layer: weights.head,
      out: logits,
      x: finalNorm(kernels, model, wanted, count).hidden,
      rows: count,
      adapters: adaptersOf(adapterSpans(sequences, logitRowsOf), (lora) => lora.head),
    });
    kernels.logSoftmaxGather({
      logprobs: kernels.scratch(count),
      logSumExp,
      logits,
      targets: scratchInts(kernels, new Int32Array(count)),
      rows: count,
      vocabSize: config.vocabSize,
      targetsPerRow: 1,
    });
  }
  return { logits, logSumExp, rows: count };
}

function layOut(sequences: SequenceRows[], rows: number) {
  const pagesPerRow = Math.max(...sequences.map(({ pages }) => pages.length));
  const tokens = new Int32Array(rows);
  const positions = new Int32Array(rows);
  const slots = new Int32Array(rows);
  const lengths = new Int32Array(rows);
  const pageTables = new Int32Array(rows * pagesPerRow);
  const logitRows: number[] = [];
  let row = 0;
  let maxLength = 0;
  for (const { pages, tokens: all, start, count, logitsFrom } of sequences) {
    for (let position = start; position < start + count; position++, row++) {
      tokens[row] = all[position]!;
      positions[row] = position;
      slots[row] = pages[Math.floor(position / PAGE_SIZE)]! * PAGE_SIZE + (position % PAGE_SIZE);
      lengths[row] = position + 1;
      for (let page = 0; page < pages.length; page++) pageTables[row * pagesPerRow + page] = pages[page]!;
      if (position >= logitsFrom) logitRows.push(row);
    }
    maxLength = Math.max(maxLength, start + count);
  }
  return {
    pagesPerRow,
    tokens,
    positions,
    slots,
    lengths,
    pageTables,
    maxLength,
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
