import { elementOf, storer } from "./attention-tiles.js";
import { storeLowPartCode } from "./low-rank.js";
import type { PagedVariant } from "./paged-shaders.js";
import { type ElementType, typed } from "./shader.js";

/** How a row's query, key and value are made of what was projected, and what is computed of the row's result. */
export interface TokenVariant {
  isNormed: boolean;
  hasBias: boolean;
  /** The adapter's B is added to what was projected. */
  isAdapted: boolean;
  /** Columns at once of A of the layer that reads the result; 0 where it has no adapter. */
  outColumns: number;
}

/** Threads that share the sum of a head's squares. */
const SHARES = 16;

/** Floats of workgroup memory: heads as they are made, sums of squares, and parts of a product. */
export const tokenFloats = (headDim: number, heads: number, threads: number) =>
  (heads + 2) * headDim + SHARES * (heads + 1) + threads;

/** Few enough for every GPU: vectors, angles, tables, adapters and intermediate results are one buffer each. */
export function tokenBuffers(variant: PagedVariant): Record<string, ElementType> {
  const { isNormed, hasBias, isAdapted, outColumns } = variant.token!;
  return {
    ...typed(elementOf(variant), "out", "key_pages", "value_pages"),
    tables: "i32",
    ...typed("f32", "work", "angles"),
    ...((isNormed || hasBias) && { vectors: "f32" as const }),
    ...((isAdapted || outColumns > 0) && { adapter: "f32" as const }),
  };
}

/** Where things are in those buffers, in elements. */
export const TOKEN_INTS = [
  ...["lengths", "positions", "slots", "page_tables"],
  ...["projected", "row_width", "query_width", "key_width"],
  ...["cosines", "sines", "query_norm", "key_norm", "bias"],
  ...["rank", "low", "query_b", "key_b", "value_b"],
  ...["kv_heads", "out_rank", "out_a", "out_low"],
] as const;
export const TOKEN_FLOATS = ["length", "eps"] as const;

/** `make_token`, `load_query`, `store_token` and where the tables are. */
export function tokenCode(variant: PagedVariant, token: TokenVariant): string {
  const { headDim, heads, part, isPartial } = variant;
  const { isNormed, hasBias, isAdapted, outColumns } = token;
  const { threads } = part;
  const half = headDim / 2;
  const width = Math.ceil(headDim / 4);
  const lowTerm = (i: number) => `work[low_at + r + ${i}u] * adapter[b_at + (r + ${i}u) * cols]`;
  const four = [0, 1, 2, 3];
  return /* wgsl */ `
var<workgroup> values_of_part: array<f32, ${(heads + 2) * headDim}>;
var<workgroup> squares: array<f32, ${SHARES * (heads + 1)}>;
${storer(variant, "key_pages")}
${storer(variant, "value_pages")}
${outColumns > 0 && !isPartial ? storeLowPartCode({ threads, columns: outColumns }, { output: "work", adapter: "adapter" }) : ""}
fn length_of(row: u32) -> u32 { return u32(tables[p.tables_at + p.lengths + row]); }
fn page_of(row: u32, page: u32) -> u32 {
  return u32(tables[p.tables_at + p.page_tables + row * p.pages_per_row + page]);
}

/** A value of queries (part 0), keys or values as it was projected, with what adapter and bias add. */
fn projected_value(row: u32, kind: u32, column: u32) -> f32 {
  let first = select(0u, p.query_width + (kind - 1u) * p.key_width, kind > 0u);
  var value = work[p.work_at + p.projected + row * p.row_width + first + column];
  ${hasBias ? "value += vectors[p.vectors_at + p.bias + first + column];" : ""}
  ${
    isAdapted
      ? /* wgsl */ `let low_at = p.work_at + p.low + (3u * row + kind) * p.rank;
  let b_at = p.adapter_at + select(select(p.value_b, p.key_b, kind == 1u), p.query_b, kind == 0u) + column;
  let cols = select(p.key_width, p.query_width, kind == 0u);
  var r = 0u;
  for (; r + 4u <= p.rank; r += 4u) {
    ${four.map((i) => `let low${i} = ${lowTerm(i)};`).join(" ")}
    ${four.map((i) => `value += low${i};`).join(" ")}
  }
  for (; r < p.rank; r++) { value += ${lowTerm(0)}; }`
      : ""
  }
  return value;
}

/** The queries that this workgroup serves, then their key and their value, normed and turned; barriers on the way. */
fn make_token(row: u32, first_head: u32, kv_head: u32, lane: u32) {
  for (var i = lane; i < ${(heads + 2) * headDim}u; i += ${threads}u) {
    let head = i / ${headDim}u;
    let kind = select(head - ${heads - 1}u, 0u, head < ${heads}u);
    let column = select(kv_head, first_head + head, head < ${heads}u) * ${headDim}u + i % ${headDim}u;
    values_of_part[i] = projected_value(row, kind, column);
  }
  workgroupBarrier();
  ${
    isNormed
      ? /* wgsl */ `for (var i = lane; i < ${SHARES * (heads + 1)}u; i += ${threads}u) {
    var sum = 0.0;
    for (var j = i % ${SHARES}u; j < ${headDim}u; j += ${SHARES}u) {
      let value = values_of_part[i / ${SHARES}u * ${headDim}u + j];
      sum += value * value;
    }
    squares[i] = sum;
  }
  workgroupBarrier();`
      : ""
  }
  let angle = u32(tables[p.tables_at + p.positions + row]) * ${half}u;
  for (var i = lane; i < ${(heads + 1) * half}u; i += ${threads}u) {
    let head = i / ${half}u;
    let pair = i % ${half}u;
    let at = head * ${headDim}u + pair;
    var a = values_of_part[at];
    var b = values_of_part[at + ${half}u];
    ${
      isNormed
        ? /* wgsl */ `var sum = 0.0;
    for (var share = 0u; share < ${SHARES}u; share++) { sum += squares[head * ${SHARES}u + share]; }
    let scale = 1.0 / sqrt(sum / p.length + p.eps);
    let norm_at = p.vectors_at + select(p.key_norm, p.query_norm, head < ${heads}u) + pair;
    a *= scale * vectors[norm_at];
    b *= scale * vectors[norm_at + ${half}u];`
        : ""
    }
    let c = angles[p.angles_at + p.cosines + angle + pair];
    let s = angles[p.angles_at + p.sines + angle + pair];
    values_of_part[at] = a * c - b * s;
    values_of_part[at + ${half}u] = b * c + a * s;
  }
  workgroupBarrier();
}

fn made_value(head: u32, column: u32) -> vec4f {
  var values = vec4f();
  let start = head * ${headDim}u + 4u * column;
  ${four.map((i) => `if (4u * column + ${i}u < ${headDim}u) { values[${i}] = values_of_part[start + ${i}u]; }`).join("\n  ")}
  return values;
}
fn load_query(row: u32, head: u32, column: u32) -> vec4f { return made_value(head % ${heads}u, column); }

/** Key and value into the pages. */
fn store_token(row: u32, kv_head: u32, lane: u32) {
  let slot = u32(tables[p.tables_at + p.slots + row]);
  for (var i = lane; i < ${width}u; i += ${threads}u) {
    store_key_pages(slot, kv_head, i, made_value(${heads}u, i));
    store_value_pages(slot, kv_head, i, made_value(${heads + 1}u, i));
  }
}`;
}

/** WGSL that keeps a head's result in workgroup memory too. */
export const keepHead = (headDim: number, head: number) =>
  [0, 1, 2, 3]
    .map(
      (i) =>
        `if (4u * column + ${i}u < ${headDim}u) { values_of_part[${head * headDim}u + 4u * column + ${i}u] = sum[${i}] / total[${head}]; }`,
    )
    .join(" ");

/** WGSL that computes what the kept results are in the next product with A. */
export const storeTokenPart = (headDim: number, heads: number) => /* wgsl */ `workgroupBarrier();
  store_low_part(first_head * ${headDim}u, ${heads * headDim}u, row * p.kv_heads + kv_head, lane);`;
