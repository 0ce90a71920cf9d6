import type { F32 } from "../kernels.js";
import type { ProductOperand } from "./product-operands.js";
import { reduceCode, threadsFor } from "./reductions.js";
import { defineShader, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/**
 * One side of a product in float16: [rows, columns] with k along a row, zeros beyond what it was made from. Each row was
 * multiplied by the power of two that brings its largest value to 2^14..2^15, and `scales` undoes that exactly: values down
 * to 2^-28 of the largest keep the 11 bits of float16, whatever a loss was divided by, and none becomes infinite.
 */
export interface HalfOperand {
  values: F32;
  scales: F32;
  rows: number;
  columns: number;
}

/** Sizes of a side of a product, and the multiples to which they are rounded up. */
export interface HalfShape {
  outer: number;
  k: number;
  rowMultiple: number;
  columnMultiple: number;
}

const THREADS = 256;
/** The chunks that a thread holds. */
const HELD = [0, 1, 2, 3];
/** Values in a chunk: 16 bytes of float16. */
const CHUNK = 8;

/** `factor` for a row whose largest value has these bits without their sign, and `undo` = 1 / factor. */
const SCALE_OF = /* wgsl */ `
fn factor_exponent(largest: u32) -> u32 {
  let exponent = largest >> 23u;
  // Infinite values and those that are not numbers stay what they are; below 2^-113 there is no larger factor.
  if (exponent == 255u) { return 127u; }
  return min(268u - exponent, 253u);
}
fn factor(largest: u32) -> f32 { return bitcast<f32>(factor_exponent(largest) << 23u); }
fn undo(largest: u32) -> f32 { return bitcast<f32>((254u - factor_exponent(largest)) << 23u); }
fn half4(low: vec4f, high: vec4f) -> vec4u {
  return vec4u(pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw));
}`;

/** How rows are brought to float16: by teams of threads, which hold their part of a row, or read it twice where it is long. */
interface RowPacking {
  isVector: boolean;
  team: number;
  isHeld: boolean;
}

const PACK_ROWS = shaderVariants(({ isVector, team, isHeld }: RowPacking) => ({
  name: `half-rows-${team}${isVector ? "-vector" : ""}${isHeld ? "-held" : ""}`,
  buffers: { x: isVector ? "vec4<f32>" : "f32", values: "vec4<u32>", scales: "f32" } as const,
  ints: ["rows", "k", "stride", "groups", "chunks"],
  code: /* wgsl */ `${SCALE_OF}
${reduceCode({ name: "team_max", type: "u32", threads: THREADS, team, join: "max(a, b)" })}

// Values at column..column+3 of a row, zeros beyond its end; column is a multiple of four.
fn four(row: u32, column: u32) -> vec4f {
  ${
    isVector
      ? "if (column >= p.k) { return vec4f(); } return x[p.x_at + (row * p.stride + column) / 4u];"
      : `let start = p.x_at + row * p.stride;
  let columns = column + vec4u(0u, 1u, 2u, 3u);
  let inside = min(columns, vec4u(p.k - 1u));
  let found = vec4f(x[start + inside.x], x[start + inside.y], x[start + inside.z], x[start + inside.w]);
  return select(vec4f(), found, columns < vec4u(p.k));`
  }
}
fn larger(bits: vec4u, value: vec4f) -> vec4u { return max(bits, bitcast<vec4u>(value) & vec4u(0x7fffffffu)); }

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let id = flat(group);
  if (id >= p.groups) { return; }
  let row = id * ${THREADS / team}u + lane / ${team}u;
  let member = lane % ${team}u;
  let source = min(row, p.rows - 1u);
  var bits = vec4u();
  ${
    isHeld
      ? HELD.map((i) => {
          const column = `(member + ${i * team}u) * ${CHUNK}u`;
          return `let low_${i} = four(source, ${column}); let high_${i} = four(source, ${column} + 4u);
  bits = larger(larger(bits, low_${i}), high_${i});`;
        }).join("\n  ")
      : `for (var chunk = member; chunk < p.chunks; chunk += ${team}u) {
    bits = larger(larger(bits, four(source, chunk * ${CHUNK}u)), four(source, chunk * ${CHUNK}u + 4u));
  }`
  }
  let largest = team_max(max(max(bits.x, bits.y), max(bits.z, bits.w)), lane);
  let row_factor = select(0.0, factor(largest), row < p.rows);
  if (member == 0u) { scales[p.scales_at + row] = undo(largest); }
  let to = p.values_at + row * p.chunks + member;
  ${
    isHeld
      ? HELD.map(
          (i) =>
            `if (member + ${i * team}u < p.chunks) { values[to + ${i * team}u] = half4(low_${i} * row_factor, high_${i} * row_factor); }`,
        ).join("\n  ")
      : `for (var chunk = 0u; chunk + member < p.chunks; chunk += ${team}u) {
    let column = (chunk + member) * ${CHUNK}u;
    values[to + chunk] = half4(four(source, column) * row_factor, four(source, column + 4u) * row_factor);
  }`
  }
}`,
}));

/** Stored rows whose maxima one workgroup finds, and the side of the square that one transposes. */
const PART_ROWS = 256;
const SIDE = 64;

const COLUMN_MAXIMA = defineShader({
  name: "half-column-maxima",
  buffers: { x: "f32", maxima: "u32" },
  ints: ["outer", "k", "stride", "blocks", "groups"],
  code: /* wgsl */ `
var<workgroup> largest: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let id = flat(group);
  if (id >= p.groups) { return; }
  let part = id / p.blocks;
  let column = id % p.blocks * ${SIDE}u + lane % ${SIDE}u;
  let source = p.x_at + min(column, p.outer - 1u);
  let end = min((part + 1u) * ${PART_ROWS}u, p.k);
  var bits = 0u;
  for (var row = part * ${PART_ROWS}u + lane / ${SIDE}u; row < end; row += ${256 / SIDE}u) {
    bits = max(bits, bitcast<u32>(x[source + row * p.stride]) & 0x7fffffffu);
  }
  largest[lane] = bits;
  workgroupBarrier();
  if (lane < ${SIDE}u) {
    for (var other = lane + ${SIDE}u; other < 256u; other += ${SIDE}u) { bits = max(bits, largest[other]); }
    maxima[p.maxima_at + part * p.blocks * ${SIDE}u + column] = bits;
  }
}`,
});

const PACK_COLUMNS = defineShader({
  name: "half-columns",
  buffers: { x: "f32", values: "vec4<u32>", scales: "f32", maxima: "u32" },
  ints: ["outer", "k", "stride", "blocks", "parts", "chunks", "groups"],
  code: /* wgsl */ `${SCALE_OF}
var<workgroup> square: array<array<f32, ${SIDE + 1}>, ${SIDE}>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let id = flat(group);
  if (id >= p.groups) { return; }
  let k_block = id / p.blocks;
  let block = id % p.blocks;
  let column = block * ${SIDE}u + lane % ${SIDE}u;
  var largest = 0u;
  for (var part = 0u; part < p.parts; part++) {
    largest = max(largest, maxima[p.maxima_at + part * p.blocks * ${SIDE}u + column]);
  }
  if (k_block == 0u && lane < ${SIDE}u) { scales[p.scales_at + column] = undo(largest); }
  let column_factor = select(0.0, factor(largest), column < p.outer);
  let source = p.x_at + min(column, p.outer - 1u);
  for (var i = lane / ${SIDE}u; i < ${SIDE}u; i += ${256 / SIDE}u) {
    let row = k_block * ${SIDE}u + i;
    square[i][lane % ${SIDE}u] = select(0.0, x[source + min(row, p.k - 1u) * p.stride] * column_factor, row < p.k);
  }
  workgroupBarrier();
  for (var i = lane; i < ${(SIDE * SIDE) / CHUNK}u; i += 256u) {
    let chunk = k_block * ${SIDE / CHUNK}u + i % ${SIDE / CHUNK}u;
    if (chunk >= p.chunks) { continue; }
    let at = i % ${SIDE / CHUNK}u * ${CHUNK}u;
    let row = i / ${SIDE / CHUNK}u;
    let low = vec4f(square[at][row], square[at + 1u][row], square[at + 2u][row], square[at + 3u][row]);
    let high = vec4f(square[at + 4u][row], square[at + 5u][row], square[at + 6u][row], square[at + 7u][row]);
    values[p.values_at + (block * ${SIDE}u + row) * p.chunks + chunk] = half4(low, high);
  }
}`,
});

/** A float32 side of `outer` times k values, in scratch; its rows and columns are rounded up, rows to a multiple of 64 at least. */
export function packHalf(
  context: GpuContext,
  { handle: x, layout, stride }: ProductOperand,
  { outer, k, rowMultiple, columnMultiple }: HalfShape,
): HalfOperand {
  const rows = Math.ceil(outer / rowMultiple) * rowMultiple;
  const columns = Math.ceil(k / columnMultiple) * columnMultiple;
  const chunks = columns / CHUNK;
  const [values, scales] = [context.scratch((rows * columns) / 2), context.scratch(rows)];
  if (layout.contiguous === "k") {
    const team = threadsFor(chunks / HELD.length, 32, THREADS);
    const groups = (rows * team) / THREADS;
    const isVector = layout.isVector && k % 4 === 0;
    context.queue.run(PACK_ROWS({ isVector, team, isHeld: chunks <= team * HELD.length }), {
      buffers: { x, values, scales },
      params: { rows: outer, k, stride, groups, chunks },
      workgroups: groups,
    });
  } else {
    const [blocks, parts] = [rows / SIDE, Math.ceil(k / PART_ROWS)];
    const groups = blocks * Math.ceil(columns / SIDE);
    const mark = context.mark();
    const maxima = context.scratchInts(parts * rows);
    context.queue.run(COLUMN_MAXIMA, {
      buffers: { x, maxima },
      params: { outer, k, stride, blocks, groups: blocks * parts },
      workgroups: blocks * parts,
    });
    context.queue.run(PACK_COLUMNS, {
      buffers: { x, values, scales, maxima },
      params: { outer, k, stride, blocks, parts, chunks, groups },
      workgroups: groups,
    });
    context.release(mark);
  }
  return { values, scales, rows, columns };
}
