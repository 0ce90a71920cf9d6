/** The decoder without a backward pass, over rows of many sequences and adapters, with keys and values in pages. */

import type { F32, Kernels } from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import {
  attentionShape,
  fillRows,
  scratchInts,
  splitQkv,
  startResidual,
  widthsOf,
} from "../model/decoder.js";
import { type AdaptedRows, linearForward } from "../model/linear.js";
import type { LoraGroup, LoraLayer, LoraWeights } from "../model/lora.js";
import { type PagePool, pageSize } from "./page-pool.js";

/** Consecutive rows of one sequence. */
export interface RowSpan {
  lora: LoraWeights | null;
  pages: number[];
  tokens: ArrayLike<number>;
  /** Positions start..start+count of `tokens` are computed; everything before is in the pages already. */
  start: number;
  count: number;
  /** Of these rows, the ones from here on get logits. */
  logitsFrom: number;
}

export interface LogitRows {
  logits: F32;
  /** log sum exp of each row. */
  lse: F32;
  rows: number;
}

/** Spans with the same adapter must be next to each other. The result lives on the scratch stack. */
export function pagedForward(
  kernels: Kernels,
  model: BaseModel,
  pool: PagePool,
  spans: RowSpan[],
): LogitRows {
  const { config, weights } = model;
  const { hiddenSize, heads, kvHeads, headDim, intermediateSize, vocabSize, rmsEps } = config;
  const width = widthsOf(config);
  const rows = spans.reduce((sum, span) => sum + span.count, 0);
  const input = layOut(spans, rows);
  const tokens = scratchInts(kernels, input.tokens);
  const positions = scratchInts(kernels, input.positions);
  const slots = scratchInts(kernels, input.slots);
  const tables = scratchInts(kernels, input.tables);
  const lengths = scratchInts(kernels, input.lengths);
  const { cos, sin } = model.rope.upTo(input.longest);
  const groups = adapterGroups(spans, (span) => span.count);

  const take = (columns: number) => kernels.scratch(rows * columns);
  let x = take(hiddenSize);
  let y = take(hiddenSize);
  const normed = take(hiddenSize);
  const rstd = take(Math.max(1, heads));
  const qkv = take(width.qkv);
  const query = { data: take(width.query), stride: width.query };
  const key = { data: take(width.key), stride: width.key };
  const attended = take(width.query);
  const gateUp = take(2 * intermediateSize);
  const activated = take(intermediateSize);
  const parts = splitQkv(qkv, width);
  const shape = attentionShape(config);
  kernels.gatherRows(x, weights.embedding, tokens, rows, hiddenSize);
  weights.layers.forEach((layer, index) => {
    const adapted = (name: keyof LoraLayer) =>
      groups.map((group) => group.on(group.lora?.layers[index]?.[name]));
    kernels.rmsNorm(normed, rstd, x, layer.inputNorm, rows, hiddenSize, rmsEps);
    if (layer.qkvBias) fillRows(kernels, qkv, layer.qkvBias, rows);
    linearForward(
      kernels,
      qkv,
      normed,
      layer.qkv,
      { rows, inputs: hiddenSize, outputs: width.qkv },
      adapted("qkv"),
      { accumulate: layer.qkvBias !== null },
    );
    kernels.normRope(
      query,
      layer.qNorm && rstd,
      parts.query,
      layer.qNorm,
      cos,
      sin,
      positions,
      rows,
      heads,
      headDim,
      rmsEps,
    );
    kernels.normRope(
      key,
      layer.kNorm && rstd,
      parts.key,
      layer.kNorm,
      cos,
      sin,
      positions,
      rows,
      kvHeads,
      headDim,
      rmsEps,
    );
    const [keys, values] = [pool.keys(index), pool.values(index)];
    kernels.scatterRows(keys, key, slots, rows, width.key);
    kernels.scatterRows(values, parts.value, slots, rows, width.key);
    kernels.attentionPaged(
      attended,
      query,
      keys,
      values,
      tables,
      lengths,
      rows,
      input.maxPages,
      pageSize,
      shape,
    );
    startResidual(kernels, y, x, layer.outputBias, rows);
    linearForward(
      kernels,
      y,
      attended,
      layer.output,
      { rows, inputs: width.query, outputs: hiddenSize },
      adapted("output"),
      { accumulate: true },
    );
    kernels.rmsNorm(normed, rstd, y, layer.postNorm, rows, hiddenSize, rmsEps);
    linearForward(
      kernels,
      gateUp,
      normed,
      layer.gateUp,
      { rows, inputs: hiddenSize, outputs: 2 * intermediateSize },
      adapted("gateUp"),
    );
    kernels.swiglu(activated, gateUp, rows, intermediateSize);
    linearForward(
      kernels,
      y,
      activated,
      layer.down,
      { rows, inputs: intermediateSize, outputs: hiddenSize },
      adapted("down"),
      { accumulate: true },
    );
    [x, y] = [y, x];
  });

  const count = input.logitRows.length;
  const logits = kernels.scratch(count * vocabSize);
  const lse = kernels.scratch(count);
  if (count > 0) {
    const wanted = kernels.scratch(count * hiddenSize);
    kernels.gatherRows(wanted, x, scratchInts(kernels, input.logitRows), count, hiddenSize);
    const hidden = kernels.scratch(count * hiddenSize);
    kernels.rmsNorm(hidden, kernels.scratch(count), wanted, weights.finalNorm, count, hiddenSize, rmsEps);
    const headGroups = adapterGroups(
      spans,
      (span) => span.start + span.count - Math.max(span.start, span.logitsFrom),
    );
    linearForward(
      kernels,
      logits,
      hidden,
      weights.head,
      { rows: count, inputs: hiddenSize, outputs: vocabSize, transposed: weights.headIsEmbedding },
      headGroups.map((group) => group.on(group.lora?.head)),
    );
    const targets = scratchInts(kernels, new Int32Array(count));
    kernels.logSoftmaxGather(kernels.scratch(count), lse, logits, targets, count, vocabSize, 1);
  }
  return { logits, lse, rows: count };
}

function layOut(spans: RowSpan[], rows: number) {
  const maxPages = Math.max(...spans.map((span) => span.pages.length));
  const tokens = new Int32Array(rows);
  const positions = new Int32Array(rows);
  const slots = new Int32Array(rows);
  const lengths = new Int32Array(rows);
  const tables = new Int32Array(rows * maxPages);
  const logitRows: number[] = [];
  let row = 0;
  let longest = 0;
  for (const { pages, tokens: all, start, count, logitsFrom } of spans) {
    for (let position = start; position < start + count; position++, row++) {
      tokens[row] = all[position]!;
      positions[row] = position;
      slots[row] = pages[Math.floor(position / pageSize)]! * pageSize + (position % pageSize);
      lengths[row] = position + 1;
      for (let page = 0; page < pages.length; page++) tables[row * maxPages + page] = pages[page]!;
      if (position >= logitsFrom) logitRows.push(row);
    }
    longest = Math.max(longest, start + count);
  }
  return {
    maxPages,
    tokens,
    positions,
    slots,
    lengths,
    tables,
    longest,
    logitRows: Int32Array.from(logitRows),
  };
}

function adapterGroups(spans: RowSpan[], rowsOf: (span: RowSpan) => number) {
  const groups: { lora: LoraWeights | null; start: number; rows: number }[] = [];
  let row = 0;
  for (const span of spans) {
    const count = Math.max(0, rowsOf(span));
    const last = groups.at(-1);
    if (last && last.lora === span.lora) last.rows += count;
    else groups.push({ lora: span.lora, start: row, rows: count });
    row += count;
  }
  return groups.map(({ lora, start, rows }) => ({
    lora,
    on: (adapter: LoraGroup | null | undefined): AdaptedRows => ({
      adapter: adapter ?? null,
      rank: lora?.rank ?? 0,
      scaling: lora?.scaling ?? 1,
      start,
      rows,
    }),
  }));
}
