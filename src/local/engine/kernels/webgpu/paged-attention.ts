import { type AttentionPaged, type AttentionShape, from, type RowSpan } from "../kernels.js";
import { bindRows, isAligned } from "./attention-tiles.js";
import type { GpuDevice } from "./gpu-device.js";
import { minPrefillRows, prefillAttention } from "./paged-prefill.js";
import {
  COMBINE,
  headsTogether,
  PAGED,
  type PagedPart,
  type PagedVariant,
  partialWidth,
  partsFor,
} from "./paged-shaders.js";
import { roomyRows } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Floats of results that wait to be combined. */
const MAX_PARTIAL = 1 << 24;
const MAX_ROWS = 65_535;

/** The best of them; on software, where threads take turns, the one with the fewest. */
function choosePart(shape: AttentionShape, { device, info }: GpuDevice): PagedPart {
  const part = partsFor(shape, device).at(info.isSoftware ? -1 : 0);
  if (!part) throw new Error(`a workgroup of this GPU has no room for heads of ${shape.headDim} values`);
  return part;
}

/** The spans that are long enough go in tiles, all rows between them one by one. */
export function attentionPaged(
  context: GpuContext,
  operation: AttentionPaged,
  part: PagedPart = choosePart(operation.shape, context.gpu),
): void {
  let done = 0;
  const attendUntil = (start: number) => {
    if (start > done) attendRows(context, operation, { start: done, rows: start - done }, part);
  };
  const { spans = [], shape } = operation;
  const minRows = spans.length > 0 ? minPrefillRows(shape.headDim, context.gpu) : 0;
  for (const span of spans) {
    if (span.rows < minRows) continue;
    attendUntil(span.start);
    prefillAttention(context, operation, span);
    done = span.start + span.rows;
  }
  attendUntil(operation.rows);
}

/** A workgroup for each row, head of keys and part of the row's keys; then the parts of each row are put together, in order. */
function attendRows(
  context: GpuContext,
  operation: AttentionPaged,
  { start, rows }: RowSpan,
  part: PagedPart,
): void {
  const { out, query, keyPages, valuePages, pageTables, lengths, pagesPerRow, pageSize, shape } = operation;
  const { heads, kvHeads, headDim, scale } = shape;
  const { queue } = context;
  const group = heads / kvHeads;
  const parts = Math.ceil((pagesPerRow * pageSize) / part.keys);
  const isPartial = parts > 1;
  const outStride = heads * headDim;
  const matrices = {
    out: { data: out, stride: outStride },
    query,
    key_pages: { data: keyPages, stride: kvHeads * headDim },
    value_pages: { data: valuePages, stride: kvHeads * headDim },
  };
  const isVector = isAligned(headDim, matrices);
  const variant: PagedVariant = { headDim, isVector, heads: headsTogether(group), pageSize, part, isPartial };
  const { buffers, strides } = bindRows(variant, matrices);
  const partialFloats = parts * heads * 4 * partialWidth(headDim);
  const rowsAtOnce = Math.min(
    MAX_ROWS,
    isPartial ? Math.max(1, Math.floor(MAX_PARTIAL / partialFloats)) : rows,
  );
  const mark = context.mark();
  const partial = isPartial ? context.scratch(Math.min(roomyRows(rows), rowsAtOnce) * partialFloats) : out;
  for (let first = start; first < start + rows; first += rowsAtOnce) {
    const count = Math.min(rowsAtOnce, start + rows - first);
    const outHere = from(out, first * outStride);
    const lengthsHere = from(lengths, first);
    queue.run(PAGED(variant), {
      buffers: {
        ...buffers,
        out: isPartial ? partial : outHere,
        query: from(query.data, first * query.stride),
        page_tables: from(pageTables, first * pagesPerRow),
        lengths: lengthsHere,
      },
      params: { ...strides, pages_per_row: pagesPerRow, heads, group, scale },
      workgroups: [heads / variant.heads, parts, count],
    });
    if (!isPartial) continue;
    queue.run(COMBINE(0), {
      buffers: { out: outHere, partial, lengths: lengthsHere },
      params: { heads, head_dim: headDim, parts, part_keys: part.keys },
      workgroups: [heads, count],
    });
  }
  context.release(mark);
}
