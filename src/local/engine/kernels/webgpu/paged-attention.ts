import { type AttentionPaged, from, slice } from "../kernels.js";
import {
  each,
  elementOf,
  type HeadLayout,
  isAligned,
  loader,
  storer,
  strideOf,
  UNSEEN,
} from "./attention-tiles.js";
import { defineShader, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

const THREADS = 128;
/** Query heads that a workgroup can serve with the keys that it reads; each has 16 threads for its softmax. */
const MAX_HEADS = 8;
const SOFTMAX_THREADS = THREADS / MAX_HEADS;
/** Keys of a workgroup, whatever else is in the call: a row's bits depend on its own keys alone. */
const PART_KEYS = 128;
/** Floats of results that wait to be combined. */
const MAX_PARTIAL = 1 << 24;
const MAX_ROWS = 65_535;

interface PagedVariant extends HeadLayout {
  /** Query heads of a workgroup. */
  heads: number;
  pageSize: number;
  partKeys: number;
  /** The results of a row's parts are to be combined; otherwise it has one part only. */
  isPartial: boolean;
}

const powerOfTwo = (least: number) => 2 ** Math.ceil(Math.log2(least));
/** Of a head: its values, the largest score and the sum of weights, in vec4. */
const partialWidth = (headDim: number) => Math.ceil(headDim / 4) + 1;

const PAGED = shaderVariants((variant: PagedVariant) => {
  const { headDim, isVector, heads, pageSize, partKeys, isPartial } = variant;
  const width = Math.ceil(headDim / 4);
  // For the scores a few threads share a key, so that they read neighbouring values, and take several keys at once.
  const lanes = Math.min(8, powerOfTwo(width));
  const keys = THREADS / lanes;
  const turns = Math.min(4, Math.ceil(16 / heads), Math.ceil(partKeys / keys));
  const steps = Math.ceil(width / lanes);
  // For the sums there is a thread for each four values of a head, several times.
  const columns = powerOfTwo(width);
  const shares = THREADS / columns;
  const element = elementOf(variant);
  const product = (turn: number, step: number) => /* wgsl */ `
      if (key${turn} < count && lane_column + ${step * lanes}u < ${width}u) {
        let values = load_key_pages(stored${turn}, kv_head, lane_column + ${step * lanes}u);
        ${each(heads, (head) => `product${turn}_${head} += dot(values, queries[${head}][lane_column + ${step * lanes}u]);`)}
      }`;
  const storePartial = (column: string, values: string) =>
    isVector
      ? `out[partial_start + ${column}] = ${values};`
      : each(4, (index) => `out[partial_start + 4u * (${column}) + ${index}u] = (${values})[${index}];`);
  const storeHead = (head: number) =>
    isPartial
      ? /* wgsl */ `
      let partial_start = p.out_at + (((row * parts.y + group.y) * p.heads + first_head + ${head}u) * ${partialWidth(headDim)}u)${isVector ? "" : " * 4u"};
      ${storePartial("column", "sum")}
      if (column == 0u) { ${storePartial(`${width}u`, `vec4(largest[${head}], total[${head}], 0.0, 0.0)`)} }`
      : `store_out(row, first_head + ${head}u, column, sum / total[${head}]);`;
  return {
    name: `attention-paged-${JSON.stringify(variant)}`,
    buffers: {
      out: element,
      query: element,
      key_pages: element,
      value_pages: element,
      page_tables: "i32",
      lengths: "i32",
    },
    params: {
      out_stride: "u32",
      query_stride: "u32",
      key_pages_stride: "u32",
      value_pages_stride: "u32",
      pages_per_row: "u32",
      heads: "u32",
      group: "u32",
      scale: "f32",
    },
    code: /* wgsl */ `
var<workgroup> queries: array<array<vec4<f32>, ${lanes * steps}>, ${heads}>;
var<workgroup> products: array<array<array<f32, ${THREADS}>, ${turns}>, ${heads}>;
var<workgroup> weights: array<array<f32, ${partKeys}>, ${heads}>;
var<workgroup> partial: array<array<f32, ${SOFTMAX_THREADS}>, ${MAX_HEADS}>;
var<workgroup> largest: array<f32, ${MAX_HEADS}>;
var<workgroup> total: array<f32, ${MAX_HEADS}>;
var<workgroup> sums: array<vec4<f32>, ${THREADS}>;
var<workgroup> row_length: u32;
${["query", "key_pages", "value_pages"].map((name) => loader(variant, name)).join("\n")}
${isPartial ? "" : storer(variant, "out")}

fn stored_row(row: u32, key: u32) -> u32 {
  let page = u32(page_tables[p.page_tables_at + row * p.pages_per_row + key / ${pageSize}u]);
  return page * ${pageSize}u + key % ${pageSize}u;
}

@compute @workgroup_size(${THREADS})
fn main(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) parts: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let first_head = group.x * ${heads}u;
  let kv_head = first_head / p.group;
  let row = group.z;
  let first_key = group.y * ${partKeys}u;
  if (lane == 0u) { row_length = u32(lengths[p.lengths_at + row]); }
  let length = workgroupUniformLoad(&row_length);
  if (first_key >= length) { return; }
  let count = min(length - first_key, ${partKeys}u);

  for (var index = lane; index < ${heads * width}u; index += ${THREADS}u) {
    queries[index / ${width}u][index % ${width}u] =
      load_query(row, first_head + index / ${width}u, index % ${width}u) * p.scale;
  }
  workgroupBarrier();

  let lane_key = lane / ${lanes}u;
  let lane_column = lane % ${lanes}u;
  for (var turn = 0u; turn < count; turn += ${turns * keys}u) {
    ${each(
      turns,
      (index) => /* wgsl */ `
    let key${index} = turn + ${index * keys}u + lane_key;
    let stored${index} = stored_row(row, first_key + min(key${index}, count - 1u));
    ${each(heads, (head) => `var product${index}_${head} = 0.0;`)}`,
    )}
    ${each(steps, (step) => each(turns, (index) => product(index, step)))}
    workgroupBarrier();
    ${each(turns, (index) => each(heads, (head) => `products[${head}][${index}][lane_column * ${keys}u + lane_key] = product${index}_${head};`))}
    workgroupBarrier();
    for (var index = lane; index < ${turns * keys}u; index += ${THREADS}u) {
      if (turn + index < count) {
        ${each(
          heads,
          (head) => /* wgsl */ `
        {
          var score = products[${head}][index / ${keys}u][index % ${keys}u];
          for (var part = 1u; part < ${lanes}u; part++) { score += products[${head}][index / ${keys}u][part * ${keys}u + index % ${keys}u]; }
          weights[${head}][turn + index] = score;
        }`,
        )}
      }
    }
  }
  workgroupBarrier();

  let soft_head = lane / ${SOFTMAX_THREADS}u;
  let soft_lane = lane % ${SOFTMAX_THREADS}u;
  if (soft_head < ${heads}u) {
    var found = ${UNSEEN};
    for (var key = soft_lane; key < count; key += ${SOFTMAX_THREADS}u) { found = max(found, weights[soft_head][key]); }
    partial[soft_head][soft_lane] = found;
  }
  workgroupBarrier();
  var found = ${UNSEEN};
  var weight_sum = 0.0;
  if (soft_head < ${heads}u) {
    for (var other = 0u; other < ${SOFTMAX_THREADS}u; other++) { found = max(found, partial[soft_head][other]); }
    for (var key = soft_lane; key < count; key += ${SOFTMAX_THREADS}u) {
      let weight = exp(weights[soft_head][key] - found);
      weights[soft_head][key] = weight;
      weight_sum += weight;
    }
  }
  workgroupBarrier();
  if (soft_head < ${heads}u) { partial[soft_head][soft_lane] = weight_sum; }
  workgroupBarrier();
  if (soft_head < ${heads}u && soft_lane == 0u) {
    for (var other = 1u; other < ${SOFTMAX_THREADS}u; other++) { weight_sum += partial[soft_head][other]; }
    largest[soft_head] = found;
    total[soft_head] = weight_sum;
  }

  let column = lane % ${columns}u;
  let share = lane / ${columns}u;
  ${each(heads, (head) => `var sum${head} = vec4<f32>();`)}
  if (column < ${width}u) {
    for (var key = share; key < count; key += ${shares}u) {
      let values = load_value_pages(stored_row(row, first_key + key), kv_head, column);
      ${each(heads, (head) => `sum${head} += weights[${head}][key] * values;`)}
    }
  }
  ${each(
    heads,
    (head) => /* wgsl */ `
  workgroupBarrier();
  sums[lane] = sum${head};
  workgroupBarrier();
  if (lane < ${width}u) {
    var sum = sum${head};
    for (var other = 1u; other < ${shares}u; other++) { sum += sums[other * ${columns}u + lane]; }
    ${storeHead(head)}
  }`,
  )}
}`,
  };
});

const COMBINE = defineShader({
  name: "attention-combine",
  buffers: { out: "f32", partial: "f32", lengths: "i32" },
  params: { heads: "u32", head_dim: "u32", parts: "u32", part_keys: "u32", count: "u32" },
  code: /* wgsl */ `
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group) * 128u + lane;
  if (index >= p.count) { return; }
  let head = (index / p.head_dim) % p.heads;
  let row = index / (p.head_dim * p.heads);
  let column = index % p.head_dim;
  let head_width = 4u * ((p.head_dim + 3u) / 4u);
  let stride = (head_width + 4u) * p.heads;
  let start = p.partial_at + row * p.parts * stride + head * (head_width + 4u);
  let parts = (u32(lengths[p.lengths_at + row]) + p.part_keys - 1u) / p.part_keys;
  var largest = partial[start + head_width];
  for (var part = 1u; part < parts; part++) { largest = max(largest, partial[start + part * stride + head_width]); }
  var sum = 0.0;
  var total = 0.0;
  for (var part = 0u; part < parts; part++) {
    let at = start + part * stride;
    let factor = exp(partial[at + head_width] - largest);
    sum += factor * partial[at + column];
    total += factor * partial[at + head_width + 1u];
  }
  out[p.out_at + index] = sum / total;
}`,
});

/** How many query heads a workgroup serves: all that share a key, or as many of them as it can. */
function headsTogether(group: number): number {
  let heads = Math.min(group, MAX_HEADS);
  while (group % heads !== 0) heads--;
  return heads;
}

/** A workgroup for each row, head of keys and part of the row's keys; then the parts of each row are put together, in order. */
export function attentionPaged(context: GpuContext, operation: AttentionPaged, partKeys = PART_KEYS): void {
  const { out, query, keyPages, valuePages, pageTables, lengths, rows, pagesPerRow, pageSize, shape } =
    operation;
  const { heads, kvHeads, headDim, scale } = shape;
  const { queue } = context;
  const parts = Math.ceil((pagesPerRow * pageSize) / partKeys);
  const isPartial = parts > 1;
  const outRows = { data: out, stride: heads * headDim };
  const [keys, values] = [keyPages, valuePages].map((data) => ({ data, stride: kvHeads * headDim }));
  const group = heads / kvHeads;
  const variant: PagedVariant = {
    headDim,
    isVector: isAligned(headDim, [outRows, query, keys!, values!]),
    heads: headsTogether(group),
    pageSize,
    partKeys,
    isPartial,
  };
  const partialFloats = parts * heads * 4 * partialWidth(headDim);
  const rowsAtOnce = Math.min(
    MAX_ROWS,
    isPartial ? Math.max(1, Math.floor(MAX_PARTIAL / partialFloats)) : rows,
  );
  const mark = context.mark();
  const partial = isPartial ? context.scratch(Math.min(rows, rowsAtOnce) * partialFloats) : out;
  for (let first = 0; first < rows; first += rowsAtOnce) {
    const count = Math.min(rowsAtOnce, rows - first);
    const outHere = slice(out, first * outRows.stride, count * outRows.stride);
    const lengthsHere = slice(lengths, first, count);
    queue.run(PAGED(variant), {
      buffers: {
        out: isPartial ? partial : outHere,
        query: from(query.data, first * query.stride),
        key_pages: keyPages,
        value_pages: valuePages,
        page_tables: slice(pageTables, first * pagesPerRow, count * pagesPerRow),
        lengths: lengthsHere,
      },
      params: {
        out_stride: strideOf(variant, outRows),
        query_stride: strideOf(variant, query),
        key_pages_stride: strideOf(variant, keys!),
        value_pages_stride: strideOf(variant, values!),
        pages_per_row: pagesPerRow,
        heads,
        group,
        scale,
      },
      workgroups: [heads / variant.heads, parts, count],
    });
    if (!isPartial) continue;
    const floats = count * heads * headDim;
    queue.run(COMBINE, {
      buffers: { out: outHere, partial, lengths: lengthsHere },
      params: { heads, head_dim: headDim, parts, part_keys: partKeys, count: floats },
      workgroups: Math.ceil(floats / 128),
    });
  }
  context.release(mark);
}
