import { type AttentionPaged, from, type RowSpan, slice } from "../kernels.js";
import { attentionCode } from "./attention.js";
import {
  type AttentionVariant,
  chooseTile,
  elementOf,
  isAligned,
  loader,
  measure,
  storer,
  strideOf,
} from "./attention-tiles.js";
import type { GpuDevice } from "./gpu-device.js";
import { shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

interface PrefillVariant extends AttentionVariant {
  pageSize: number;
}

/** Rows are counted by their position in the sequence, as its keys are. */
const PREFILL = shaderVariants((variant: PrefillVariant) => {
  const { pageSize } = variant;
  const element = elementOf(variant);
  return {
    name: `attention-prefill-${JSON.stringify(variant)}`,
    buffers: {
      out: element,
      query: element,
      key_pages: element,
      value_pages: element,
      page_table: "i32",
      lengths: "i32",
    },
    params: {
      out_stride: "u32",
      query_stride: "u32",
      key_pages_stride: "u32",
      value_pages_stride: "u32",
      rows: "u32",
      group: "u32",
      scale: "f32",
    },
    code: /* wgsl */ `
var<private> position: u32;
var<workgroup> first_length: u32;

fn stored_row(key: u32) -> u32 {
  return u32(page_table[p.page_table_at + key / ${pageSize}u]) * ${pageSize}u + key % ${pageSize}u;
}
${loader(variant, "query", "(row - position)")}
${loader(variant, "key_pages", "stored_row(row)")}
${loader(variant, "value_pages", "stored_row(row)")}
${storer(variant, "out", "(row - position)")}
fn load_key(row: u32, head: u32, column: u32) -> vec4<f32> { return load_key_pages(row, head, column); }
fn load_value(row: u32, head: u32, column: u32) -> vec4<f32> { return load_value_pages(row, head, column); }
${attentionCode(variant, {
  span: /* wgsl */ `
  if (lane == 0u) { first_length = u32(lengths[p.lengths_at]); }
  let first_position = workgroupUniformLoad(&first_length) - 1u;
  position = first_position;
  let start = 0u;
  let first_row = first_position + tile * ${measure(variant).tileRows}u;
  let end = first_position + p.rows;`,
})}`,
  };
});

/** With fewer rows than this, a sequence has none of a tile's advantage. */
export const minPrefillRows = (headDim: number, gpu: GpuDevice): number =>
  measure({ headDim, isVector: true, tile: chooseTile(headDim, gpu) }).tileRows;

/** Rows of one sequence share the keys that a workgroup reads, a tile of rows at a time. */
export function prefillAttention(
  { queue, gpu }: GpuContext,
  operation: AttentionPaged,
  { start, rows }: RowSpan,
): void {
  const { out, query, keyPages, valuePages, pageTables, lengths, pagesPerRow, pageSize, shape } = operation;
  const { heads, kvHeads, headDim, scale } = shape;
  const outRows = { data: out, stride: heads * headDim };
  const keys = { data: keyPages, stride: kvHeads * headDim };
  const values = { data: valuePages, stride: kvHeads * headDim };
  const variant: PrefillVariant = {
    headDim,
    isVector: isAligned(headDim, [outRows, query, keys, values]),
    tile: chooseTile(headDim, gpu),
    pageSize,
  };
  queue.run(PREFILL(variant), {
    buffers: {
      out: slice(out, start * outRows.stride, rows * outRows.stride),
      query: from(query.data, start * query.stride),
      key_pages: keyPages,
      value_pages: valuePages,
      page_table: slice(pageTables, start * pagesPerRow, pagesPerRow),
      lengths: slice(lengths, start, 1),
    },
    params: {
      out_stride: strideOf(variant, outRows),
      query_stride: strideOf(variant, query),
      key_pages_stride: strideOf(variant, keys),
      value_pages_stride: strideOf(variant, values),
      rows,
      group: heads / kvHeads,
      scale,
    },
    workgroups: [heads, Math.ceil(rows / measure(variant).tileRows)],
  });
}
