import type { BlockAdapter, FewRowBlock } from "../few-rows.js";
import { type AttentionShape, type F32, sliceBuffer } from "../kernels.js";
import { bindRows, isAligned } from "./attention-tiles.js";
import { windowOver } from "./device-memory.js";
import type { GpuDevice } from "./gpu-device.js";
import { lowColumns } from "./low-rank.js";
import type { TokenVariant } from "./new-token.js";
import {
  COMBINE,
  COMBINE_THREADS,
  headsTogether,
  MAX_HEAD_DIM,
  PAGED,
  type PagedPart,
  type PagedVariant,
  partialWidth,
  partsFor,
} from "./paged-shaders.js";
import { MAX_FEW_ROWS } from "./product-dots.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Attention of new tokens: B, bias, norm, rotation and the pages before it, A of the next layer behind it. */
export interface NewTokens
  extends Pick<FewRowBlock, "rows" | "pages" | "angles" | "shape" | "eps" | "adapter"> {
  /** [rows, heads * headDim]. */
  out: F32;
  /** Parts of one buffer, this and the next two: [rows, queries, keys and values], as they were projected. */
  projected: F32;
  /** Scaled, [rows, 3 * rank], where queries, keys and values have an adapter. */
  lowRank: F32;
  /** [rows, parts, rank]: `out` * A of the output layer, in as many parts as are returned. */
  nextLowRank: F32;
  weights: Pick<FewRowBlock["weights"], "queryNorm" | "keyNorm" | "qkvBias">;
}

/** The variant of the shader is the largest that there is: with norm, bias and adapters. */
const LARGEST: TokenVariant = { isNormed: true, hasBias: true, isAdapted: true, outColumns: 1 };

/** Parts that were chosen; all blocks of a pass have the same shape. */
const CHOSEN = new WeakMap<AttentionShape, PagedPart | undefined>();

/** How a workgroup reads a row's keys; undefined where none can serve all queries of a key. */
export function newTokenPart(shape: AttentionShape, gpu: GpuDevice): PagedPart | undefined {
  if (!CHOSEN.has(shape)) CHOSEN.set(shape, choosePart(shape, gpu));
  return CHOSEN.get(shape);
}

function choosePart(shape: AttentionShape, { device, info }: GpuDevice): PagedPart | undefined {
  const { heads, kvHeads, headDim } = shape;
  if (headsTogether(heads / kvHeads) !== heads / kvHeads || headDim > MAX_HEAD_DIM) return undefined;
  return partsFor(shape, device, undefined, LARGEST).at(info.isSoftware ? -1 : 0);
}

/** One run, and another where a row has more keys than a workgroup takes. Returns the parts of `nextLowRank`. */
export function attendNewTokens(
  context: GpuContext,
  operation: NewTokens,
  part = newTokenPart(operation.shape, context.gpu)!,
): number {
  const { out, rows, projected, lowRank, nextLowRank, weights, adapter, pages, angles } = operation;
  const { shape, eps } = operation;
  const { heads, kvHeads, headDim, scale } = shape;
  const group = heads / kvHeads;
  const { keyPages, valuePages, lengths, positions, slots, pageTables, pagesPerRow, pageSize } = pages;
  const parts = Math.ceil((pagesPerRow * pageSize) / part.keys);
  const isPartial = parts > 1;
  const [queryWidth, keyWidth] = [heads * headDim, kvHeads * headDim];
  const output = adapter?.output;
  const { queryNorm, keyNorm, qkvBias } = weights;
  const token: TokenVariant = {
    isNormed: queryNorm !== undefined && keyNorm !== undefined,
    hasBias: qkvBias !== undefined,
    isAdapted: adapter?.qkv !== undefined,
    outColumns: output ? lowColumns(output.rank, isPartial ? COMBINE_THREADS : part.threads) : 0,
  };
  const mark = context.mark();
  const partialFloats = parts * heads * 4 * partialWidth(headDim);
  const partial = isPartial ? context.scratch(MAX_FEW_ROWS * partialFloats) : out;
  const matrices = {
    out: { data: partial, stride: queryWidth },
    key_pages: { data: keyPages, stride: keyWidth },
    value_pages: { data: valuePages, stride: keyWidth },
  };
  const isVector = isAligned(headDim, matrices);
  // The shader leaves A to the one that puts parts together.
  const ownToken = isPartial ? { ...token, outColumns: 0 } : token;
  const variant: PagedVariant = {
    headDim,
    isVector,
    heads: group,
    pageSize,
    part,
    isPartial,
    token: ownToken,
  };
  const { buffers, strides } = bindRows(variant, matrices);
  const tables = windowOver(lengths, positions, slots, pageTables);
  const work = windowOver(projected, lowRank, nextLowRank);
  const ofAdapter = adapterWindow(adapter);
  const vectors = [queryNorm, keyNorm, qkvBias].filter((vector) => vector !== undefined);
  const ofVectors = vectors.length > 0 ? windowOver(...vectors) : undefined;
  const startOf = (vector: F32 | undefined) =>
    vector === undefined ? 0 : ofVectors!.starts[vectors.indexOf(vector)]!;
  const turned = windowOver(angles.cos, angles.sin);
  const outParams = {
    out_rank: output?.rank ?? 0,
    out_a: ofAdapter?.outA ?? 0,
    out_low: work.starts[2]!,
  };
  context.queue.run(PAGED(variant), {
    buffers: {
      ...buffers,
      tables: tables.window,
      work: work.window,
      angles: turned.window,
      ...(ofVectors && { vectors: ofVectors.window }),
      ...(ofAdapter && { adapter: ofAdapter.window }),
    },
    params: {
      ...strides,
      ...{ pages_per_row: pagesPerRow, heads, group, scale, length: headDim, eps },
      ...{ lengths: tables.starts[0]!, positions: tables.starts[1]!, slots: tables.starts[2]! },
      page_tables: tables.starts[3]!,
      ...{ projected: work.starts[0]!, row_width: queryWidth + 2 * keyWidth },
      ...{ query_width: queryWidth, key_width: keyWidth },
      ...{ cosines: turned.starts[0]!, sines: turned.starts[1]! },
      ...{ query_norm: startOf(queryNorm), key_norm: startOf(keyNorm), bias: startOf(qkvBias) },
      ...{ rank: adapter?.qkv?.rank ?? 0, low: work.starts[1]! },
      query_b: ofAdapter?.b[0] ?? 0,
      key_b: ofAdapter?.b[1] ?? 0,
      value_b: ofAdapter?.b[2] ?? 0,
      kv_heads: kvHeads,
      ...outParams,
    },
    workgroups: [kvHeads, parts, rows],
  });
  if (isPartial) {
    context.queue.run(COMBINE(token.outColumns), {
      buffers: {
        ...{ out, partial, lengths: sliceBuffer(lengths, 0, rows) },
        ...(output && { work: work.window, adapter: ofAdapter!.window }),
      },
      params: { heads, head_dim: headDim, parts, part_keys: part.keys, ...outParams },
      workgroups: [heads, rows],
    });
  }
  context.release(mark);
  return isPartial ? heads : kvHeads;
}

/** The attention's adapters as one buffer, and where B of each layer and A of the output layer begin there. */
function adapterWindow(adapter: BlockAdapter | undefined) {
  const [b, a] = [adapter?.qkv?.b ?? [], adapter?.output ? [adapter.output.a] : []];
  const all = [...b.map(({ matrix }) => matrix), ...a];
  if (all.length === 0) return undefined;
  const { window, starts } = windowOver(...all);
  return { window, b: starts.slice(0, b.length), outA: starts[b.length] };
}
