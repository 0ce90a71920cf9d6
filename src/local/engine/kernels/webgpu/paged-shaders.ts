import type { AttentionShape } from "../kernels.js";
import { each, elementOf, type HeadLayout, loader, storer, strideNames, UNSEEN } from "./attention-tiles.js";
import { storeLowPartCode } from "./low-rank.js";
import {
  keepHead,
  storeTokenPart,
  TOKEN_FLOATS,
  TOKEN_INTS,
  type TokenVariant,
  tokenBuffers,
  tokenCode,
  tokenFloats,
} from "./new-token.js";
import { reduceCode, teamSumCode } from "./reductions.js";
import { type ElementType, shaderVariants, typed } from "./shader.js";

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
/** Threads that put the parts of a head together, and the largest head with an adapter behind it. */
export const [COMBINE_THREADS, MAX_HEAD_DIM] = [128, 512];

/** Shapes and settings that a shader of paged attention is compiled for. */
export interface PagedVariant extends HeadLayout {
  /** Query heads of a workgroup. */
  heads: number;
  pageSize: number;
  part: PagedPart;
  /** The results of a row's parts are to be combined; otherwise it has one part only. */
  isPartial: boolean;
  /** The row's token is new: its query, key and value are made here. */
  token?: TokenVariant;
}

const powerOfTwo = (least: number) => 2 ** Math.ceil(Math.log2(least));
/** Width of a head's partial result in vec4: its values, the largest score and the sum of weights. */
export const partialWidth = (headDim: number) => Math.ceil(headDim / 4) + 1;

/** The numbers that follow from a variant; widths of heads are in vec4. */
function measure({
  headDim,
  heads,
  part,
  token,
}: Pick<PagedVariant, "headDim" | "heads" | "part" | "token">) {
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
    4 * heads * lanes * steps +
    heads * turns * part.threads +
    heads * part.keys +
    7 * part.threads +
    (token ? tokenFloats(headDim, heads, part.threads) : 0);
  return { width, lanes, steps, keys, turns, columns, shares, unrolled, bytes: 4 * floats };
}

/** The parts that fit the device's workgroup memory, best first. */
export function partsFor(
  { headDim, heads, kvHeads }: AttentionShape,
  { limits }: GPUDevice,
  parts = PARTS,
  token?: TokenVariant,
) {
  return parts.filter(
    (part) =>
      part.threads <= limits.maxComputeInvocationsPerWorkgroup &&
      part.threads >= headDim / 4 &&
      measure({ headDim, heads: headsTogether(heads / kvHeads), part, ...(token && { token }) }).bytes <=
        limits.maxComputeWorkgroupStorageSize,
  );
}

/** A row's queries over one part of its keys. */
export const PAGED = shaderVariants((variant: PagedVariant) => {
  const { headDim, isVector, heads, pageSize, part, isPartial, token } = variant;
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
      : `${token ? keepHead(headDim, head) : ""} store_out(row, first_head + ${head}u, column, sum / total[${head}]);`;
  return {
    name: `attention-paged-${JSON.stringify(variant)}`,
    buffers: token ? tokenBuffers(variant) : pagedBuffers(variant),
    ints: [
      ...strideNames("out", "key_pages", "value_pages"),
      ...["pages_per_row", "heads", "group"],
      ...(token ? TOKEN_INTS : strideNames("query")),
    ],
    floats: ["scale", ...(token ? TOKEN_FLOATS : [])],
    code: /* wgsl */ `
var<workgroup> queries: array<array<vec4<f32>, ${lanes * steps}>, ${heads}>;
var<workgroup> products: array<array<array<f32, ${threads}>, ${turns}>, ${heads}>;
var<workgroup> weights: array<array<f32, ${partKeys}>, ${heads}>;
var<workgroup> largest: array<f32, ${heads}>;
var<workgroup> total: array<f32, ${heads}>;
var<workgroup> sums: array<vec4<f32>, ${threads}>;
var<workgroup> pages: array<u32, ${pages}>;
var<workgroup> row_length: u32;
${["key_pages", "value_pages"].map((name) => loader(variant, name)).join("\n")}
${token ? tokenCode(variant, token) : `${loader(variant, "query")}\n${TABLES}`}
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
  if (lane == 0u) { row_length = length_of(row); }
  let length = workgroupUniformLoad(&row_length);
  if (first_key >= length) { return; }
  let last_key = min(length - first_key, ${partKeys}u) - 1u;
  let first_page = first_key / ${pageSize}u;
  // Entries beyond the row's table are never read.
  for (var page = lane; page < ${pages}u; page += ${threads}u) {
    let at = min(first_page + page, p.pages_per_row - 1u);
    pages[page] = page_of(row, at);
  }
  ${token ? "make_token(row, first_head, kv_head, lane);" : ""}
  for (var index = lane; index < ${heads * width}u; index += ${threads}u) {
    queries[index / ${width}u][index % ${width}u] =
      load_query(row, first_head + index / ${width}u, index % ${width}u) * p.scale;
  }
  ${token ? `if (length - first_key <= ${partKeys}u) { store_token(row, kv_head, lane); }\n  storageBarrier();` : ""}
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
  ${token?.outColumns && !isPartial ? storeTokenPart(headDim, heads) : ""}
}

fn stored_row(key: u32, first_page: u32) -> u32 {
  return pages[key / ${pageSize}u - first_page] * ${pageSize}u + key % ${pageSize}u;
}`,
  };
});

/** Where the tables of rows are parts of a pass. */
const TABLES = /* wgsl */ `
fn length_of(row: u32) -> u32 { return u32(lengths[p.lengths_at + row]); }
fn page_of(row: u32, page: u32) -> u32 {
  return u32(page_tables[p.page_tables_at + row * p.pages_per_row + page]);
}`;

function pagedBuffers(variant: PagedVariant): Record<string, ElementType> {
  return {
    ...typed(elementOf(variant), "out", "query", "key_pages", "value_pages"),
    ...typed("i32", "page_tables", "lengths"),
  };
}

/** Puts the parts of a head together; `outColumns` as a new token has it. */
export const COMBINE = shaderVariants((outColumns: number) => ({
  name: `attention-combine ${outColumns}`,
  buffers: {
    ...typed("f32", "out", "partial"),
    lengths: "i32",
    ...(outColumns > 0 && typed("f32", "work", "adapter")),
  } as Record<string, ElementType>,
  ints: [
    "heads",
    "head_dim",
    "parts",
    "part_keys",
    ...(outColumns > 0 ? ["out_rank", "out_a", "out_low"] : []),
  ],
  code: /* wgsl */ `
${
  outColumns > 0
    ? `var<workgroup> values_of_part: array<f32, ${MAX_HEAD_DIM}>;
${storeLowPartCode({ threads: COMBINE_THREADS, columns: outColumns }, { output: "work", adapter: "adapter" })}`
    : ""
}
@compute @workgroup_size(${COMBINE_THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let head = group.x;
  let row = group.y;
  let head_width = 4u * ((p.head_dim + 3u) / 4u);
  let stride = (head_width + 4u) * p.heads;
  let start = p.partial_at + row * p.parts * stride + head * (head_width + 4u);
  let parts = (u32(lengths[p.lengths_at + row]) + p.part_keys - 1u) / p.part_keys;
  var largest = partial[start + head_width];
  for (var part = 1u; part < parts; part++) { largest = max(largest, partial[start + part * stride + head_width]); }
  for (var column = lane; column < p.head_dim; column += ${COMBINE_THREADS}u) {
    var sum = 0.0;
    var total = 0.0;
    for (var part = 0u; part < parts; part++) {
      let at = start + part * stride;
      let factor = exp(partial[at + head_width] - largest);
      sum += factor * partial[at + column];
      total += factor * partial[at + head_width + 1u];
    }
    out[p.out_at + (row * p.heads + head) * p.head_dim + column] = sum / total;
    ${outColumns > 0 ? "values_of_part[column] = sum / total;" : ""}
  }
  ${
    outColumns > 0
      ? `workgroupBarrier();
  store_low_part(head * p.head_dim, p.head_dim, row * p.heads + head, lane);`
      : ""
  }
}`,
}));

/** How many query heads a workgroup serves: all that share a key, or as many of them as it can. */
export function headsTogether(group: number): number {
  let heads = Math.min(group, MAX_HEADS);
  while (group % heads !== 0) heads--;
  return heads;
}
