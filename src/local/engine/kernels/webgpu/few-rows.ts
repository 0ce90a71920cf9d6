import type { FewRowBlock, FewRowHead, FewRowKernels, LowRankGroup } from "../few-rows.js";
import { type F32, partsOf, sliceBuffer } from "../kernels.js";
import { adaptedProduct } from "./adapted-product.js";
import { adaptedSwiglu, swigluParts } from "./adapted-swiglu.js";
import { attendNewTokens, newTokenPart } from "./attend-new-tokens.js";
import { MAX_LOW_VALUES } from "./low-rank.js";
import { normedProduct } from "./normed-product.js";
import { MAX_FEW_ROWS, shaderRows } from "./product-dots.js";
import { multiplyMatrices } from "./products.js";
import { swiglu } from "./rows.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** A block in six runs, seven for long sequences, with or without an adapter. */
export function fewRowKernels(context: GpuContext): FewRowKernels {
  return {
    maxRows: MAX_FEW_ROWS,
    fit: (rows, shape, rank) =>
      rows <= MAX_FEW_ROWS &&
      shaderRows(rows) * 2 ** Math.ceil(Math.log2(Math.max(1, rank))) <= MAX_LOW_VALUES &&
      newTokenPart(shape, context.gpu) !== undefined,
    block: (operation) => block(context, operation),
    head: (operation) => head(context, operation),
  };
}

/** Intermediate results have as many rows for every batch: so the bind groups of one serve them all. */
function block(context: GpuContext, operation: FewRowBlock): void {
  const { x, rows, weights, adapter, pages, angles, shape, eps } = operation;
  const take = (columns: number) => context.scratch(MAX_FEW_ROWS * columns);
  const mark = context.mark();
  const { qkv, output, gateUp, down } = weights;
  const [width, cols] = [shape.heads * shape.headDim, down.inputs];

  const { starts, length } = partsOf(
    [qkv.outputs, 3 * rankOf(adapter?.qkv), shape.heads * rankOf(adapter?.output)].map(
      (columns) => MAX_FEW_ROWS * columns,
    ),
  );
  const ends = [starts[1], starts[2], length];
  const work = context.scratch(length);
  const [projected, lowRank, nextLowRank] = starts.map((start, index) =>
    sliceBuffer(work, start!, ends[index]! - start!),
  ) as [F32, F32, F32];
  normedProduct(context, {
    ...{ c: projected, lowRank, x, rows, eps },
    ...{ norm: weights.inputNorm, weight: qkv, adapter: adapter?.qkv },
  });
  const attended = take(width);
  const parts = attendNewTokens(context, {
    ...{ out: attended, projected, lowRank, nextLowRank },
    ...{ rows, weights, adapter, pages, angles, shape, eps },
  });
  adaptedProduct(context, {
    ...{ c: x, a: attended, rows, weight: output, bias: weights.outputBias },
    ...{ lowRank: { values: nextLowRank, parts }, adapter: adapter?.output },
  });

  const [gated, activated] = [take(gateUp.outputs), take(cols)];
  const lowGated = take(2 * rankOf(adapter?.gateUp));
  const lowActivated = take(swigluParts(cols) * rankOf(adapter?.down));
  normedProduct(context, {
    ...{ c: gated, lowRank: lowGated, x, rows, eps },
    ...{ norm: weights.postNorm, weight: gateUp, adapter: adapter?.gateUp },
  });
  if (adapter?.gateUp && adapter.down) {
    adaptedSwiglu(context, {
      ...{ out: activated, gateUp: gated, rows, cols, lowRank: lowGated },
      ...{ adapter: adapter.gateUp, next: adapter.down, nextLowRank: lowActivated },
    });
  } else {
    if (adapter?.gateUp || adapter?.down) throw new Error("gate, up and down are adapted together");
    swiglu(context, activated, gated, rows, cols);
  }
  adaptedProduct(context, {
    ...{ c: x, a: activated, rows, weight: down, bias: undefined },
    ...{ lowRank: { values: lowActivated, parts: swigluParts(cols) }, adapter: adapter?.down },
  });
  context.release(mark);
}

const rankOf = (group: LowRankGroup | undefined) => group?.rank ?? 0;

/** A product with the norm and A in it, then B. */
function head(context: GpuContext, operation: FewRowHead): void {
  const { out, x, rows, norm, weight, adapter, eps } = operation;
  const mark = context.mark();
  const lowRank = context.scratch(MAX_FEW_ROWS * rankOf(adapter));
  normedProduct(context, { c: out, lowRank, x, rows, norm, eps, weight, adapter });
  if (adapter) {
    const [{ matrix, cols }] = adapter.b as [LowRankGroup["b"][0]];
    const product = { c: out, a: lowRank, b: matrix, m: rows, n: cols, k: adapter.rank };
    multiplyMatrices(context, { ...product, accumulate: true });
  }
  context.release(mark);
}
