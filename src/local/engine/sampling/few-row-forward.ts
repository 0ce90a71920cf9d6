import type { BlockMatrices, FewRowKernels, LowRankGroup, PagedRows } from "../kernels/few-rows.js";
import {
  type F32,
  type Frozen,
  from,
  type I32,
  type Kernels,
  type Matrix,
  sliceBuffer,
} from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import { type AdapterSpan, attentionShape } from "../model/decoder.js";
import type { LayerWeights } from "../model/decoder-weights.js";
import type { LoraWeights } from "../model/lora.js";
import type { PagePool } from "./page-pool.js";

/** Each span reads the model's weights: more of them would cost a large model more than fewer runs gain. */
const MAX_SPANS = 2;

/** The tables of rows that are each the last token of a sequence of its own. */
export interface FewRowTables extends Omit<PagedRows, "keyPages" | "valuePages"> {
  tokens: I32;
  /** All positions are below this. */
  maxLength: number;
}

/** The kernels' operations for few rows, where they can take all of these spans. */
export function fittingKernels(
  { fewRows }: Kernels,
  { config, weights }: BaseModel,
  spans: AdapterSpan[],
): FewRowKernels | undefined {
  if (weights.head.weight.kind !== "frozen" || spans.length > MAX_SPANS) return undefined;
  const shape = attentionShape(config);
  return spans.every(({ rows, lora }) => fewRows?.fit(rows, shape, largestRank(lora))) ? fewRows : undefined;
}

function largestRank(lora: LoraWeights | undefined): number {
  const groups = [lora?.head, ...Object.values(lora?.layers[0] ?? {})];
  return groups.reduce((most, group?: LowRankGroup) => Math.max(most, group?.rank ?? 0), 0);
}

/** All blocks and the head, once for each adapter; `logits` are [rows, vocabulary]. */
export function fewRowForward(
  kernels: Kernels,
  fewRows: FewRowKernels,
  model: BaseModel,
  pool: PagePool,
  pass: { spans: AdapterSpan[]; tables: FewRowTables; logits: F32 },
): void {
  const { config, weights, rope } = model;
  const { hiddenSize, vocabSize, rmsEps: eps } = config;
  const { cos, sin } = rope.upTo(pass.tables.maxLength);
  const shape = attentionShape(config);
  for (const { lora, start, rows } of pass.spans) {
    const { tokens, pagesPerRow, ...tables } = pass.tables;
    const mark = kernels.mark();
    const x = kernels.scratch(fewRows.maxRows * hiddenSize);
    kernels.gatherRows(x, weights.embedding, sliceBuffer(tokens, start, rows), rows, hiddenSize);
    weights.layers.forEach((layer, index) => {
      fewRows.block({
        ...{ x, rows, shape, eps, angles: { cos, sin } },
        weights: matricesOf(layer),
        adapter: lora?.layers[index],
        pages: {
          keyPages: pool.keys(index),
          valuePages: pool.values(index),
          positions: from(tables.positions, start),
          slots: from(tables.slots, start),
          lengths: from(tables.lengths, start),
          pageTables: from(tables.pageTables, start * pagesPerRow),
          pagesPerRow,
          pageSize: tables.pageSize,
        },
      });
    });
    const weight = weights.head.weight as Frozen;
    const out = sliceBuffer(pass.logits, start * vocabSize, rows * vocabSize);
    fewRows.head({ out, x, rows, norm: weights.finalNorm, weight, adapter: lora?.head, eps });
    kernels.release(mark);
  }
}

/** Base models are frozen. */
function matricesOf(layer: LayerWeights<Matrix>): BlockMatrices {
  const frozen = ({ weight }: { weight: Matrix }) => weight as Frozen;
  const { inputNorm, postNorm, queryNorm, keyNorm, qkvBias, outputBias } = layer;
  return {
    ...{ inputNorm, postNorm, queryNorm, keyNorm, qkvBias, outputBias },
    qkv: frozen(layer.qkv),
    output: frozen(layer.output),
    gateUp: frozen(layer.gateUp),
    down: frozen(layer.down),
  };
}
