import { type AttentionPaged, from, type RowSpan, sliceBuffer } from "../kernels.js";
import { attentionCode } from "./attention.js";
import {
  type AttentionVariant,
  bindRows,
  chooseTile,
  elementOf,
  isAligned,
  loader,
  measure,
  storer,
  strideNames,
} from "./attention-tiles.js";
import type { GpuDevice } from "./gpu-device.js";
import { shaderVariants, typed } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

interface PrefillVariant extends AttentionVariant {
  pageSize: number;
}

const MATRICES = ["out", "query", "key_pages", "value_pages"] as const;

/** Rows are counted by their position in the sequence, as its keys are. */
const PREFILL = shaderVariants((variant: PrefillVariant) => {
  const { pageSize } = variant;
  return {
    name: `attention-prefill-${JSON.stringify(variant)}`,
    buffers: {
      ...typed(elementOf(variant), ...MATRICES),
      page_table: "i32" as const,
      lengths: "i32" as const,
    },
    ints: [...strideNames(...MATRICES), "rows", "group"],
    floats: ["scale"],
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
  const width = heads * headDim;
  const matrices = {
    out: { data: sliceBuffer(out, start * width, rows * width), stride: width },
    query: { data: from(query.data, start * query.stride), stride: query.stride },
    key_pages: { data: keyPages, stride: kvHeads * headDim },
    value_pages: { data: valuePages, stride: kvHeads * headDim },
  };
  const isVector = isAligned(headDim, matrices);
  const variant: PrefillVariant = { headDim, isVector, tile: chooseTile(headDim, gpu), pageSize };
  const { buffers, strides } = bindRows(variant, matrices);
  queue.run(PREFILL(variant), {
    buffers: {
      ...buffers,
      page_table: sliceBuffer(pageTables, start * pagesPerRow, pagesPerRow),
      lengths: sliceBuffer(lengths, start, 1),
    },
    params: { ...strides, rows, group: heads / kvHeads, scale },
    workgroups: [heads, Math.ceil(rows / measure(variant).tileRows)],
  });
}
