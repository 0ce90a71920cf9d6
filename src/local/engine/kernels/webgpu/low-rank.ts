import { range } from "./product-dots.js";

/** Upper bound for rows * rank whose low-rank values are in workgroup memory. */
export const MAX_LOW_VALUES = 1024;
/** Values that are read before the first is added. */
const READ_AHEAD = 8;

/**
 * `load_low(rows, lane)`: the values of the first rows as other workgroups left them, in `low_rank_parts` parts each, added in
 * order and scaled, go into `low_values`, [rows, rank]. A barrier follows.
 */
export const loadLowCode = (threads: number, values: number) => /* wgsl */ `
var<workgroup> low_values: array<f32, ${values}>;
fn load_low(rows: u32, lane: u32) {
  for (var i = lane; i < rows * p.rank; i += ${threads}u) {
    let start = p.low_rank_at + min(i / p.rank, p.m - 1u) * p.low_rank_parts * p.rank + i % p.rank;
    var sum = 0.0;
    for (var part = 0u; part < p.low_rank_parts; part += ${READ_AHEAD}u) {
      ${range(READ_AHEAD)
        .map((i) => `let v${i} = low_rank[start + min(part + ${i}u, p.low_rank_parts - 1u) * p.rank];`)
        .join("\n      ")}
      ${range(READ_AHEAD)
        .map((i) => `sum += select(0.0, v${i}, part + ${i}u < p.low_rank_parts);`)
        .join(" ")}
    }
    low_values[i] = sum * p.scaling;
  }
}`;

/** Lanes that share a value of a low rank, and the values of as many as there are lanes. */
export interface LowPart {
  threads: number;
  /** Columns of A at once: a power of two, at most as many as threads. */
  columns: number;
}

/** The columns at once for a rank. */
export const lowColumns = (rank: number, threads: number) =>
  Math.min(threads, 2 ** Math.ceil(Math.log2(rank)));

/**
 * `store_low_part(first, count, part, lane)`: the part of values `first`..`first + count` of A's input, which are in
 * `values_of_part`, in a row's product with A, for whoever adds the parts. All threads come by, after a barrier.
 * `scratch`, `output` and `adapter` name a workgroup array of a float for each thread and two buffers.
 */
export const storeLowPartCode = (
  { threads, columns }: LowPart,
  { output, adapter }: { output: string; adapter: string },
) => /* wgsl */ `
var<workgroup> low_sums: array<f32, ${threads}>;
fn store_low_part(first: u32, count: u32, part: u32, lane: u32) {
  let share = lane / ${columns}u;
  for (var base = 0u; base < p.out_rank; base += ${columns}u) {
    let column = base + lane % ${columns}u;
    let read = p.${adapter}_at + p.out_a + min(column, p.out_rank - 1u);
    var sum = 0.0;
    for (var i = share; i < count; i += ${threads / columns}u) {
      sum += values_of_part[i] * ${adapter}[read + (first + i) * p.out_rank];
    }
    low_sums[lane] = sum;
    workgroupBarrier();
    if (share == 0u && column < p.out_rank) {
      for (var other = 1u; other < ${threads / columns}u; other++) { sum += low_sums[other * ${columns}u + lane]; }
      ${output}[p.${output}_at + p.out_low + part * p.out_rank + column] = sum;
    }
    workgroupBarrier();
  }
}`;
