import type { F32, Frozen } from "../kernels.js";
import type { GpuFrozen } from "./frozen.js";
import { packHalf } from "./half-operand.js";
import { type Operand, operandsOf, type Product } from "./product-operands.js";
import { defineShader, type ElementType, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** How a product is cut: a workgroup computes `rows` x `columns` of c, `depth` of k at a time; a subgroup a part of that. */
export interface TensorTile {
  rows: number;
  columns: number;
  depth: number;
  groupRows: number;
  groupColumns: number;
  /** Staged tiles held at once: with 2, the next is written while this one is read. */
  buffers: 1 | 2;
  /** The next tile is read from memory while this one is multiplied. */
  isPrefetched: boolean;
  /** The steps within a staged tile are written out; a loop over them compiles faster. */
  isUnrolled: boolean;
  /** Values added to staged rows, so that the rows of a hardware matrix lie in different banks. */
  padding: number;
  /** Values in an element of staged tiles. */
  element: 1 | 2 | 4;
}

/** How the right side is stored: k along a row ("k") or n along a row ("n"); packed here, or as the model's file has it. */
interface TensorShader extends TensorTile {
  rowsOfB: "k" | "n";
  dtype: "BF16" | "F16";
  isPacked: boolean;
}

/** The sides of a hardware matrix, and the lanes that hold it together. */
const SIDE = 16;
const LANES = 32;
/** Values of 16 bytes, which are moved at once. */
const CHUNK = 8;
/** Tiles of c's rows that follow one another before the next column of tiles: they share what they read. */
const BAND = 8;
/** Values added to the rows of results on their way out, for the same reason as to those of staged tiles. */
const SUM_PADDING = 8;
/** What large cards have. */
const MAX_WORKGROUP_BYTES = 48 << 10;

const range = (count: number) => Array.from({ length: count }, (_, index) => index);
const lines = (count: number, line: (index: number) => string) => range(count).map(line).join("\n");

/** Threads in a workgroup. */
export const tensorThreads = ({ rows, columns, groupRows, groupColumns }: TensorTile) =>
  (rows / groupRows) * (columns / groupColumns) * LANES;

/** Workgroup memory of a tile, whatever its right side's layout, and how many matrices of results leave through it side by side. */
function tensorMemory(tile: TensorTile): { bytes: number; leaving: number } {
  const { rows, columns, depth, groupColumns, buffers, padding } = tile;
  const right = Math.max(columns * (depth + padding), depth * (columns + padding));
  const staged = 2 * buffers * (rows * (depth + padding) + right);
  const bytes = (leaving: number) => staged + (tensorThreads(tile) / LANES) * 4 * SIDE * sumsWidth(leaving);
  let leaving = groupColumns / SIDE;
  while (leaving % 2 === 0 && bytes(leaving) > MAX_WORKGROUP_BYTES) leaving /= 2;
  return { bytes: bytes(leaving), leaving };
}

const sumsWidth = (leaving: number) => leaving * SIDE + (leaving > 1 ? SUM_PADDING : 0);

/** The shader of one kind of tile, for one kind of right side. */
export const TENSOR_SHADER = shaderVariants((settings: TensorShader) => {
  const { rows, columns, depth, groupRows, groupColumns, buffers, isPrefetched, padding, element } = settings;
  const { isUnrolled, rowsOfB, dtype, isPacked } = settings;
  const threads = tensorThreads(settings);
  const [matrixRows, matrixColumns] = [groupRows / SIDE, groupColumns / SIDE];
  const groupsAcross = columns / groupColumns;
  /** Staged rows of both sides: how many, and how wide. */
  const [bRows, bWidth] = rowsOfB === "k" ? [columns, depth] : [depth, columns];
  const [aStride, bStride] = [(depth + padding) / element, (bWidth + padding) / element];
  const [aSize, bSize] = [rows * aStride, bRows * bStride];
  const [aAcross, bAcross] = [depth / CHUNK, bWidth / CHUNK];
  const [aChunks, bChunks] = [(rows * aAcross) / threads, (bRows * bAcross) / threads];
  if (threads % aAcross || threads % bAcross || !Number.isInteger(aChunks) || !Number.isInteger(bChunks)) {
    throw new Error(`a tile of ${rows}x${columns}x${depth} does not divide among ${threads} threads`);
  }
  const elementType = element === 1 ? "f16" : `vec${element}<f16>`;
  const matrices = range(matrixRows).flatMap((i) => range(matrixColumns).map((j) => [i, j] as const));
  /** Results leave so many matrices at a time, side by side. */
  const { leaving } = tensorMemory(settings);
  const sumsStride = sumsWidth(leaving);
  const lanesAcross = Math.min(leaving * SIDE, LANES);

  const fetch = (step: string) => /* wgsl */ `
${lines(aChunks, (i) => `next_a_${i} = a[a_from + ${i * (threads / aAcross)}u * p.a_chunks + ${step} * ${aAcross}u];`)}
${
  rowsOfB === "k"
    ? lines(
        bChunks,
        (i) =>
          `next_b_${i} = b[b_row_${i} + min(${step} * ${bAcross}u + lane % ${bAcross}u, p.b_chunks - 1u)];`,
      )
    : lines(
        bChunks,
        (i) =>
          `next_b_${i} = b[b_column + min(${step} * ${depth}u + lane / ${bAcross}u + ${i * (threads / bAcross)}u, p.b_last) * p.b_chunks];`,
      )
}`;
  const store = (name: "a" | "b", count: number, across: number, stride: number, size: number, at: string) =>
    lines(count, (i) => {
      const row = `(lane / ${across}u + ${i * (threads / across)}u)`;
      const start = `${at} * ${size}u + ${row} * ${stride}u + lane % ${across}u * ${CHUNK / element}u`;
      const halves = (word: string) => `${name}_half2(next_${name}_${i}.${word})`;
      const elements = {
        4: ["xy", "zw"].map((words) => `${name}_half4(next_${name}_${i}.${words})`),
        2: ["x", "y", "z", "w"].map(halves),
        1: ["x", "y", "z", "w"].flatMap((word) => [`${halves(word)}.x`, `${halves(word)}.y`]),
      }[element];
      return `{ let to = ${start};
      ${elements.map((value, index) => `${name}_tile[to + ${index}u] = ${value};`).join(" ")} }`;
    });
  const stage = (at: string) =>
    `${store("a", aChunks, aAcross, aStride, aSize, at)}\n${store("b", bChunks, bAcross, bStride, bSize, at)}`;
  const [aStep, bStep] = [SIDE / element, rowsOfB === "k" ? SIDE / element : SIDE * bStride];
  const right = rowsOfB === "k" ? SIDE * bStride : SIDE / element;
  const multiplyStep = (at: string, inner: string) => /* wgsl */ `{
    let a_step = ${at} * ${aSize}u + a_group + ${inner} * ${aStep}u;
    let b_step = ${at} * ${bSize}u + b_group + ${inner} * ${bStep}u;
    ${lines(matrixRows, (i) => `let left_${i} = subgroupMatrixLoad<subgroup_matrix_left<f16, ${SIDE}, ${SIDE}>, row_major>(&a_tile, a_step + ${i * SIDE * aStride}u, ${aStride}u);`)}
    ${lines(
      matrixColumns,
      (j) => `{
      let right = subgroupMatrixLoad<subgroup_matrix_right<f16, ${SIDE}, ${SIDE}>, ${rowsOfB === "k" ? "col_major" : "row_major"}>(&b_tile, b_step + ${j * right}u, ${bStride}u);
      ${lines(matrixRows, (i) => `sum_${i}_${j} = subgroupMatrixMultiplyAccumulate(left_${i}, right, sum_${i}_${j});`)}
    }`,
    )}
  }`;
  // The number of steps is a parameter, so that no compiler writes the loop out.
  const multiply = (at: string) =>
    isUnrolled
      ? lines(depth / SIDE, (inner) => multiplyStep(at, `${inner}u`))
      : `for (var inner = 0u; inner < p.inner_steps; inner++) ${multiplyStep(at, "inner")}`;
  const loop =
    buffers === 1
      ? /* wgsl */ `
  for (var step = first; step < last; step++) {
    ${isPrefetched ? "" : fetch("step")}
    ${stage("0u")}
    workgroupBarrier();
    ${isPrefetched ? `if (step + 1u < last) { ${fetch("(step + 1u)")} }` : ""}
    ${multiply("0u")}
    workgroupBarrier();
  }`
      : /* wgsl */ `
  ${stage("0u")}
  workgroupBarrier();
  var at = 0u;
  for (var step = first; step < last; step++) {
    if (step + 1u < last) { ${fetch("(step + 1u)")} }
    ${multiply("at")}
    at = 1u - at;
    if (step + 1u < last) { ${stage("at")} }
    workgroupBarrier();
  }`;

  return {
    name: `tensor-product-${Object.values(settings).join("-")}`,
    enables: ["f16", "subgroups", "chromium_experimental_subgroup_matrix"],
    buffers: {
      c: "f32",
      a: "vec4<u32>",
      a_scales: "f32",
      b: isPacked ? "vec4<u32>" : "read vec4<u32>",
      ...(isPacked && { b_scales: "f32" }),
    } as Record<"c" | "a" | "a_scales" | "b" | "b_scales", ElementType | `read ${ElementType}`>,
    params: {
      m: "u32",
      n: "u32",
      c_stride: "u32",
      accumulate: "u32",
      a_chunks: "u32",
      b_chunks: "u32",
      b_last: "u32",
      tiles_down: "u32",
      tiles_across: "u32",
      parts: "u32",
      steps: "u32",
      part_steps: "u32",
      part_size: "u32",
      inner_steps: "u32",
    } as const,
    code: /* wgsl */ `
var<workgroup> a_tile: array<${elementType}, ${buffers * aSize}>;
var<workgroup> b_tile: array<${elementType}, ${buffers * bSize}>;
var<workgroup> sums: array<f32, ${(threads / LANES) * SIDE * sumsStride}>;

${half("a", "F16")}
${half("b", dtype)}

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3u,
  @builtin(local_invocation_index) lane: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
  let id = flat(group);
  let tiles = p.tiles_down * p.tiles_across;
  if (id >= tiles * p.parts) { return; }
  let part = id / tiles;
  let tile = id % tiles;
  let band = tile / (${BAND}u * p.tiles_across);
  let in_band = tile % (${BAND}u * p.tiles_across);
  let band_rows = min(${BAND}u, p.tiles_down - band * ${BAND}u);
  let row_from = (band * ${BAND}u + in_band % band_rows) * ${rows}u;
  let column_from = in_band / band_rows * ${columns}u;

  let a_from = p.a_at + (row_from + lane / ${aAcross}u) * p.a_chunks + lane % ${aAcross}u;
  ${
    rowsOfB === "k"
      ? lines(
          bChunks,
          (i) =>
            `let b_row_${i} = p.b_at + min(column_from + lane / ${bAcross}u + ${i * (threads / bAcross)}u, p.b_last) * p.b_chunks;`,
        )
      : `let b_column = p.b_at + min(column_from / ${CHUNK}u + lane % ${bAcross}u, p.b_chunks - 1u);`
  }
  let group_row = subgroup / ${groupsAcross}u * ${groupRows}u;
  let group_column = subgroup % ${groupsAcross}u * ${groupColumns}u;
  let a_group = group_row * ${aStride}u;
  let b_group = ${rowsOfB === "k" ? `group_column * ${bStride}u` : `group_column / ${element}u`};
  ${matrices.map(([i, j]) => `var sum_${i}_${j} = subgroup_matrix_result<f32, ${SIDE}, ${SIDE}>();`).join("\n")}
  ${lines(aChunks, (i) => `var next_a_${i}: vec4u;`)}
  ${lines(bChunks, (i) => `var next_b_${i}: vec4u;`)}

  let first = part * p.part_steps;
  let last = min(first + p.part_steps, p.steps);
  ${fetch("first")}
  ${loop}

  let sums_from = subgroup * ${SIDE * sumsStride}u;
  ${matrices
    .filter(([, j]) => j % leaving === 0)
    .map(
      ([i, j]) => /* wgsl */ `
  ${lines(leaving, (next) => `subgroupMatrixStore<row_major>(&sums, sums_from + ${next * SIDE}u, sum_${i}_${j + next}, ${sumsStride}u);`)}
  workgroupBarrier();
  write(sums_from, part, row_from + group_row + ${i * SIDE}u, column_from + group_column + ${j * SIDE}u, subgroup_lane);
  workgroupBarrier();`,
    )
    .join("")}
}

fn write(start: u32, part: u32, row_from: u32, column_from: u32, subgroup_lane: u32) {
  let rows = min(${SIDE}u, p.m - min(row_from, p.m));
  let columns = min(${leaving * SIDE}u, p.n - min(column_from, p.n));
  for (var column = subgroup_lane % ${lanesAcross}u; column < columns; column += ${lanesAcross}u) {
    let column_scale = ${isPacked ? "b_scales[p.b_scales_at + column_from + column]" : "1.0"};
    for (var i = subgroup_lane / ${lanesAcross}u; i < rows; i += ${LANES / lanesAcross}u) {
      let row = row_from + i;
      // One factor after the other: their product alone may be beyond float32.
      let value = sums[start + i * ${sumsStride}u + column] * a_scales[p.a_scales_at + row] * column_scale;
      let to = p.c_at + part * p.part_size + row * p.c_stride + column_from + column;
      if (p.accumulate != 0u) { c[to] += value; } else { c[to] = value; }
    }
  }
}`,
  };
});

/** Two or four values of a side as float16. */
const half = (name: "a" | "b", dtype: "BF16" | "F16") =>
  dtype === "F16"
    ? /* wgsl */ `
fn ${name}_half2(word: u32) -> vec2<f16> { return bitcast<vec2<f16>>(word); }
fn ${name}_half4(words: vec2u) -> vec4<f16> { return bitcast<vec4<f16>>(words); }`
    : /* wgsl */ `
fn ${name}_half2(word: u32) -> vec2<f16> { return vec2<f16>(bitcast<vec2f>(vec2u(word << 16u, word & 0xffff0000u))); }
fn ${name}_half4(words: vec2u) -> vec4<f16> {
  let wide = vec4u(words.x << 16u, words.x & 0xffff0000u, words.y << 16u, words.y & 0xffff0000u);
  return vec4<f16>(bitcast<vec4f>(wide));
}`;

const ADD_PARTS = defineShader({
  name: "tensor-product-add-parts",
  buffers: { c: "f32", sums: "f32" },
  params: { size: "u32", n: "u32", c_stride: "u32", parts: "u32", accumulate: "u32" },
  code: /* wgsl */ `
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group) * 256u + lane;
  if (index >= p.size) { return; }
  var sum = 0.0;
  for (var part = 0u; part < p.parts; part++) { sum += sums[p.sums_at + part * p.size + index]; }
  let to = p.c_at + index / p.n * p.c_stride + index % p.n;
  if (p.accumulate != 0u) { c[to] += sum; } else { c[to] = sum; }
}`,
});

/** How a product runs on tensor cores: in which tiles, with k in how many parts. */
export interface TensorPlan {
  tile: TensorTile;
  parts: number;
}

const STAGED = { buffers: 2, isPrefetched: true, isUnrolled: true, padding: 8, element: 4 } as const;
const LARGE: TensorTile = {
  rows: 128,
  columns: 128,
  depth: 32,
  groupRows: 64,
  groupColumns: 32,
  ...STAGED,
};
const SMALL: TensorTile = { rows: 64, columns: 64, depth: 32, groupRows: 32, groupColumns: 32, ...STAGED };

/** Workgroups that keep a large card busy. */
const ENOUGH_WORKGROUPS = 132;
/** Steps of one part, at least: shorter ones cost more to add up than they gain. */
const MIN_PART_STEPS = 8;
/** Below these the plain products are faster: what tensor cores save is less than the way to float16 costs. */
const [MIN_SIDE, MIN_MULTIPLICATIONS] = [64, 2 ** 25];

/** The tiles and parts that suit a product's shape; undefined where tensor cores would not gain. */
export function planTensorProduct(
  m: number,
  n: number,
  k: number,
  maxWorkgroupBytes = MAX_WORKGROUP_BYTES,
): TensorPlan | undefined {
  if (Math.min(m, n, k) < MIN_SIDE || m * n * k < MIN_MULTIPLICATIONS) return undefined;
  const count = ({ rows, columns }: TensorTile) => Math.ceil(m / rows) * Math.ceil(n / columns);
  const isLarge = count(LARGE) >= ENOUGH_WORKGROUPS && tensorMemory(LARGE).bytes <= maxWorkgroupBytes;
  const tile = isLarge ? LARGE : SMALL;
  const wanted = Math.ceil(ENOUGH_WORKGROUPS / count(tile));
  const parts = Math.max(1, Math.min(wanted, Math.floor(k / tile.depth / MIN_PART_STEPS)));
  return { tile, parts };
}

/** Takes a product where precision is fast and tensor cores gain; false where not. */
export function fastMatmul(context: GpuContext, product: Product): boolean {
  const { precision, device } = context.gpu;
  if (precision !== "fast") return false;
  const { m, n, k } = product;
  const plan = planTensorProduct(m, n, k, device.limits.maxComputeWorkgroupStorageSize);
  if (!plan) return false;
  multiplyOnTensorCores(context, product, plan);
  return true;
}

/** Computes a product in a given way: both sides to float16 unless they are in two bytes, then tiles, then the sum of parts. */
export function multiplyOnTensorCores(
  context: GpuContext,
  product: Product,
  { tile, parts }: TensorPlan,
): void {
  const { c, m, n, k, ldc = n, accumulate = false } = product;
  const operands = operandsOf(product);
  const { queue } = context;
  const mark = context.mark();
  const shape = { outer: m, k, rowMultiple: tile.rows, columnMultiple: tile.depth };
  const a = packHalf(context, operands.a, shape);
  const b = rightOperand(context, operands.b, product, tile);
  const steps = a.columns / tile.depth;
  const partSteps = Math.ceil(steps / parts);
  const partCount = Math.ceil(steps / partSteps);
  const [down, across] = [Math.ceil(m / tile.rows), Math.ceil(n / tile.columns)];
  const sums = partCount > 1 ? context.scratch(partCount * m * n) : undefined;
  const shader = TENSOR_SHADER({
    ...tile,
    rowsOfB: b.rowsOf,
    dtype: b.dtype,
    isPacked: b.scales !== undefined,
  });
  queue.run(shader, {
    buffers: {
      c: sums ?? c,
      a: a.values,
      a_scales: a.scales,
      b: b.values,
      b_scales: b.scales ?? a.scales,
    },
    params: {
      m,
      n,
      c_stride: sums ? n : ldc,
      accumulate: accumulate && !sums ? 1 : 0,
      a_chunks: a.columns / CHUNK,
      b_chunks: b.columns / CHUNK,
      b_last: b.rows - 1,
      tiles_down: down,
      tiles_across: across,
      parts: partCount,
      steps,
      part_steps: partSteps,
      part_size: m * n,
      inner_steps: tile.depth / SIDE,
    },
    workgroups: down * across * partCount,
  });
  if (sums) {
    queue.run(ADD_PARTS, {
      buffers: { c, sums },
      params: { size: m * n, n, c_stride: ldc, parts: partCount, accumulate: accumulate ? 1 : 0 },
      workgroups: Math.ceil((m * n) / 256),
    });
  }
  context.release(mark);
}

interface RightOperand {
  values: F32 | Frozen;
  scales: F32 | undefined;
  dtype: "BF16" | "F16";
  rowsOf: "k" | "n";
  /** Stored, so that everything before `rows` * `columns` may be read. */
  rows: number;
  columns: number;
}

function rightOperand(
  context: GpuContext,
  operand: Operand,
  { n, k }: Product,
  tile: TensorTile,
): RightOperand {
  const { handle, layout } = operand;
  if (layout.dtype !== "f32") {
    const { dtype, outputs: rows, stride: columns } = handle as GpuFrozen & { dtype: "BF16" | "F16" };
    const rowsOf = layout.contiguous === "k" ? "k" : "n";
    return { values: handle, scales: undefined, dtype, rowsOf, rows, columns };
  }
  const shape = { outer: n, k, rowMultiple: Math.max(64, tile.columns), columnMultiple: tile.depth };
  return { ...packHalf(context, operand, shape), dtype: "F16", rowsOf: "k" };
}
