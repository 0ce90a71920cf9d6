import { type AttentionPaged, type AttentionShape, from, type RowSpan, sliceBuffer } from "../kernels.js";
import {
  bindRows,
  each,
  elementOf,
  type HeadLayout,
  isAligned,
  loader,
  storer,
  strideNames,
  UNSEEN,
} from "./attention-tiles.js";
import type { GpuDevice } from "./gpu-device.js";
import { minPrefillRows, prefillAttention } from "./paged-prefill.js";
import { reduceCode, teamSumCode } from "./reductions.js";
import { defineShader, shaderVariants, typed } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** How a workgroup reads a row's keys. */
export interface PagedPart {
  threads: number;
  /** Keys of a workgroup, whatever else is in the call: a row's bits depend on its own keys alone. */
  keys: number;
}

/** Best first: a row of a few hundred keys in one part needs no second shader. Powers of two. */
const PARTS: readonly PagedPart[] = [
  { threads: 512, keys: 512 },
  { threads: 256, keys: 256 },
  { threads: 128, keys: 128 },
  { threads: 64, keys: 64 },
];
/** Query heads that a workgroup can serve with the keys that it reads. */
const MAX_HEADS = 8;
/** Loads of a thread that are under way at once. */
const LOADS = 8;
/** Floats of results that wait to be combined. */
const MAX_PARTIAL = 1 << 24;
const MAX_ROWS = 65_535;

interface PagedVariant extends HeadLayout {
  /** Query heads of a workgroup. */
  heads: number;
  pageSize: number;
  part: PagedPart;
  /** The results of a row's parts are to be combined; otherwise it has one part only. */
  isPartial: boolean;
}

const powerOfTwo = (least: number) => 2 ** Math.ceil(Math.log2(least));
/** Width of a head's partial result in vec4: its values, the largest score and the sum of weights. */
const partialWidth = (headDim: number) => Math.ceil(headDim / 4) + 1;

/** The numbers that follow from a variant; widths of heads are in vec4. */
function measure({ headDim, heads, part }: Pick<PagedVariant, "headDim" | "heads" | "part">) {
  const width = Math.ceil(headDim / 4);
  // For the scores a few threads share a key, so that they read neighbouring values, and take several keys at once.
  const lanes = Math.min(8, powerOfTwo(width));
  const steps = Math.ceil(width / lanes);
  const keys = part.threads / lanes;
  const turns = Math.max(1, Math.min(Math.floor(LOADS / steps), Math.ceil(16 / heads), part.keys / keys));
  // For the sums there is a thread for each four values of a head, several times.
  const columns = powerOfTwo(width);
  const shares = part.threads / columns;
  const unrolled = Math.max(1, Math.min(LOADS, part.keys / shares));
  const floats =
    4 * heads * lanes * steps + heads * turns * part.threads + heads * part.keys + 7 * part.threads;
  return { width, lanes, steps, keys, turns, columns, shares, unrolled, bytes: 4 * floats };
}

/** The parts that fit the device's workgroup memory, best first. */
export function partsFor({ headDim, heads, kvHeads }: AttentionShape, { limits }: GPUDevice, parts = PARTS) {
  return parts.filter(
    (part) =>
      part.threads <= limits.maxComputeInvocationsPerWorkgroup &&
      part.threads >= headDim / 4 &&
      measure({ headDim, heads: headsTogether(heads / kvHeads), part }).bytes <=
        limits.maxComputeWorkgroupStorageSize,
  );
}

/** The best of them; on software, where threads take turns, the one with the fewest. */
function choosePart(shape: AttentionShape, { device, info }: GpuDevice): PagedPart {
  const part = partsFor(shape, device).at(info.isSoftware ? -1 : 0);
  if (!part) throw new Error(`a workgroup of this GPU has no room for heads of ${shape.headDim} values`);
  return part;
}

const PAGED = shaderVariants((variant: PagedVariant) => {
  const { headDim, isVector, heads, pageSize, part, isPartial } = variant;
  const { width, lanes, steps, keys, turns, columns, shares, unrolled } = measure(variant);
  const { threads, keys: partKeys } = part;
  const team = 2 ** Math.floor(Math.log2(threads / heads));
  const pages = Math.ceil(partKeys / pageSize) + 1;
  const stepColumn = (step: number) => `lane_column + ${step * lanes}u`;
  const loadKey = (turn: number, step: number) =>
    width % lanes === 0
      ? `let values${turn}_${step} = load_key_pages(stored${turn}, kv_head, ${stepColumn(step)});`
      : /* wgsl */ `
    var values${turn}_${step} = vec4<f32>();
    if (${stepColumn(step)} < ${width}u) { values${turn}_${step} = load_key_pages(stored${turn}, kv_head, ${stepColumn(step)}); }`;
  const multiply = (step: number, head: number) => /* wgsl */ `
    {
      let query = queries[${head}][${stepColumn(step)}];
      ${each(turns, (turn) => `product${turn}_${head} += dot(values${turn}_${step}, query);`)}
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
      ...typed(elementOf(variant), "out", "query", "key_pages", "value_pages"),
      page_tables: "i32" as const,
      lengths: "i32" as const,
    },
    ints: [...strideNames("out", "query", "key_pages", "value_pages"), "pages_per_row", "heads", "group"],
    floats: ["scale"],
    code: /* wgsl */ `
var<workgroup> queries: array<array<vec4<f32>, ${lanes * steps}>, ${heads}>;
var<workgroup> products: array<array<array<f32, ${threads}>, ${turns}>, ${heads}>;
var<workgroup> weights: array<array<f32, ${partKeys}>, ${heads}>;
var<workgroup> largest: array<f32, ${heads}>;
var<workgroup> total: array<f32, ${heads}>;
var<workgroup> sums: array<vec4<f32>, ${threads}>;
var<workgroup> pages: array<u32, ${pages}>;
var<workgroup> row_length: u32;
${["query", "key_pages", "value_pages"].map((name) => loader(variant, name)).join("\n")}
${isPartial ? "" : storer(variant, "out")}
${reduceCode({ name: "team_max", type: "f32", threads, team, join: "max(a, b)" })}
${teamSumCode(threads, team)}

@compute @workgroup_size(${threads})
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
  let last_key = min(length - first_key, ${partKeys}u) - 1u;
  let first_page = first_key / ${pageSize}u;
  // Entries beyond the row's table are never read.
  for (var page = lane; page < ${pages}u; page += ${threads}u) {
    let at = min(first_page + page, p.pages_per_row - 1u);
    pages[page] = u32(page_tables[p.page_tables_at + row * p.pages_per_row + at]);
  }
  for (var index = lane; index < ${heads * width}u; index += ${threads}u) {
    queries[index / ${width}u][index % ${width}u] =
      load_query(row, first_head + index / ${width}u, index % ${width}u) * p.scale;
  }
  workgroupBarrier();

  let lane_key = lane / ${lanes}u;
  let lane_column = lane % ${lanes}u;
  for (var turn = 0u; turn <= last_key; turn += ${turns * keys}u) {
    ${each(
      turns,
      (index) => /* wgsl */ `
    let stored${index} = stored_row(first_key + min(turn + ${index * keys}u + lane_key, last_key), first_page);
    ${each(heads, (head) => `var product${index}_${head} = 0.0;`)}`,
    )}
    ${each(steps, (step) => each(turns, (index) => loadKey(index, step)))}
    ${each(steps, (step) => each(heads, (head) => multiply(step, head)))}
    workgroupBarrier();
    ${each(turns, (index) => each(heads, (head) => `products[${head}][${index}][lane_column * ${keys}u + lane_key] = product${index}_${head};`))}
    workgroupBarrier();
    for (var index = lane; index < ${turns * keys}u; index += ${threads}u) {
      ${each(
        heads,
        (head) => /* wgsl */ `
      {
        var score = products[${head}][index / ${keys}u][index % ${keys}u];
        ${each(lanes - 1, (other) => `score += products[${head}][index / ${keys}u][${(other + 1) * keys}u + index % ${keys}u];`)}
        if (turn + index <= last_key) { weights[${head}][turn + index] = score; }
      }`,
      )}
    }
  }
  workgroupBarrier();

  let team_head = lane / ${team}u;
  let member = lane % ${team}u;
  var found = ${UNSEEN};
  if (team_head < ${heads}u) {
    for (var key = member; key <= last_key; key += ${team}u) { found = max(found, weights[team_head][key]); }
  }
  found = team_max(found, lane);
  var weight_sum = 0.0;
  if (team_head < ${heads}u) {
    for (var key = member; key < ${partKeys}u; key += ${team}u) {
      let weight = select(0.0, exp(weights[team_head][key] - found), key <= last_key);
      weights[team_head][key] = weight;
      weight_sum += weight;
    }
  }
  weight_sum = team_sum(weight_sum, lane);
  if (team_head < ${heads}u && member == 0u) {
    largest[team_head] = found;
    total[team_head] = weight_sum;
  }

  let column = lane % ${columns}u;
  let share = lane / ${columns}u;
  ${each(heads, (head) => `var sum${head} = vec4<f32>();`)}
  if (column < ${width}u) {
    for (var first = share; first <= last_key; first += ${unrolled * shares}u) {
      ${each(
        unrolled,
        (index) =>
          `let values${index} = load_value_pages(stored_row(first_key + min(first + ${index * shares}u, last_key), first_page), kv_head, column);`,
      )}
      ${each(unrolled, (index) => each(heads, (head) => `sum${head} += weights[${head}][first + ${index * shares}u] * values${index};`))}
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
}

fn stored_row(key: u32, first_page: u32) -> u32 {
  return pages[key / ${pageSize}u - first_page] * ${pageSize}u + key % ${pageSize}u;
}`,
  };
});

const COMBINE = defineShader({
  name: "attention-combine",
  buffers: { out: "f32", partial: "f32", lengths: "i32" },
  ints: ["heads", "head_dim", "parts", "part_keys", "count"],
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
  const partial = isPartial ? context.scratch(Math.min(rows, rowsAtOnce) * partialFloats) : out;
  for (let first = start; first < start + rows; first += rowsAtOnce) {
    const count = Math.min(rowsAtOnce, start + rows - first);
    const outHere = sliceBuffer(out, first * outStride, count * outStride);
    const lengthsHere = sliceBuffer(lengths, first, count);
    queue.run(PAGED(variant), {
      buffers: {
        ...buffers,
        out: isPartial ? partial : outHere,
        query: from(query.data, first * query.stride),
        page_tables: sliceBuffer(pageTables, first * pagesPerRow, count * pagesPerRow),
        lengths: lengthsHere,
      },
      params: { ...strides, pages_per_row: pagesPerRow, heads, group, scale },
      workgroups: [heads / variant.heads, parts, count],
    });
    if (!isPartial) continue;
    const floats = count * heads * headDim;
    queue.run(COMBINE, {
      buffers: { out: outHere, partial, lengths: lengthsHere },
      params: { heads, head_dim: headDim, parts, part_keys: part.keys, count: floats },
      workgroups: Math.ceil(floats / 128),
    });
  }
  context.release(mark);
}
