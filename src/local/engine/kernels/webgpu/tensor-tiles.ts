import type { TileSides } from "./product-parts.js";
import { type ElementType, shaderVariants } from "./shader.js";

/** How a product is cut, and what a subgroup computes of a tile. */
export interface TensorTile extends TileSides {
  groupRows: number;
  groupColumns: number;
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
export const CHUNK = 8;
/** Staged tiles held at once: the next is written while this one is read. */
const BUFFERS = 2;
/** Values in an element of staged tiles. */
const ELEMENT = 4;
/** Added to staged rows and to those of results on their way out, so that the rows of a hardware matrix lie in different banks. */
const PADDING = 8;
/** Tiles of c's rows that follow one another before the next column of tiles: they share what they read. */
const BAND = 8;
/** Workgroup memory of large GPUs. */
const MAX_WORKGROUP_BYTES = 48 << 10;

const range = (count: number) => Array.from({ length: count }, (_, index) => index);
const lines = (count: number, line: (index: number) => string) => range(count).map(line).join("\n");

/** Threads in a workgroup. */
const tensorThreads = ({ rows, columns, groupRows, groupColumns }: TensorTile) =>
  (rows / groupRows) * (columns / groupColumns) * LANES;

/** A tile in short, for names and tables. */
export const tensorTileName = ({ rows, columns, depth, groupRows, groupColumns }: TensorTile) =>
  `${rows}x${columns}x${depth}/${groupRows}x${groupColumns}`;

/** Workgroup memory of a tile, whatever its right side's layout, and how many matrices of results leave through it side by side. */
export function tensorMemory(tile: TensorTile): { bytes: number; leaving: number } {
  const { rows, columns, depth, groupColumns } = tile;
  const right = Math.max(columns * (depth + PADDING), depth * (columns + PADDING));
  const staged = 2 * BUFFERS * (rows * (depth + PADDING) + right);
  const bytes = (leaving: number) => staged + (tensorThreads(tile) / LANES) * 4 * SIDE * sumsWidth(leaving);
  let leaving = groupColumns / SIDE;
  while (leaving % 2 === 0 && bytes(leaving) > MAX_WORKGROUP_BYTES) leaving /= 2;
  return { bytes: bytes(leaving), leaving };
}

const sumsWidth = (leaving: number) => leaving * SIDE + (leaving > 1 ? PADDING : 0);

/** The shader of one kind of tile, for one kind of right side. */
export const TENSOR_SHADER = shaderVariants((settings: TensorShader) => {
  const { rows, columns, depth, groupRows, groupColumns, rowsOfB, dtype, isPacked } = settings;
  const threads = tensorThreads(settings);
  const [matrixRows, matrixColumns] = [groupRows / SIDE, groupColumns / SIDE];
  const groupsAcross = columns / groupColumns;
  /** Staged rows of both sides: how many, and how wide. */
  const [bRows, bWidth] = rowsOfB === "k" ? [columns, depth] : [depth, columns];
  const [aStride, bStride] = [(depth + PADDING) / ELEMENT, (bWidth + PADDING) / ELEMENT];
  const [aSize, bSize] = [rows * aStride, bRows * bStride];
  const [aAcross, bAcross] = [depth / CHUNK, bWidth / CHUNK];
  const [aChunks, bChunks] = [(rows * aAcross) / threads, (bRows * bAcross) / threads];
  if (threads % aAcross || threads % bAcross || !Number.isInteger(aChunks) || !Number.isInteger(bChunks)) {
    throw new Error(`a tile of ${rows}x${columns}x${depth} does not divide among ${threads} threads`);
  }
  const elementType = `vec${ELEMENT}<f16>`;
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
      const start = `${at} * ${size}u + ${row} * ${stride}u + lane % ${across}u * ${CHUNK / ELEMENT}u`;
      const elements = ["xy", "zw"].map((words) => `${name}_half4(next_${name}_${i}.${words})`);
      return `{ let to = ${start};
      ${elements.map((value, index) => `${name}_tile[to + ${index}u] = ${value};`).join(" ")} }`;
    });
  const stage = (at: string) =>
    `${store("a", aChunks, aAcross, aStride, aSize, at)}\n${store("b", bChunks, bAcross, bStride, bSize, at)}`;
  const [aStep, bStep] = [SIDE / ELEMENT, rowsOfB === "k" ? SIDE / ELEMENT : SIDE * bStride];
  const right = rowsOfB === "k" ? SIDE * bStride : SIDE / ELEMENT;
  const multiplyStep = (at: string, inner: number) => /* wgsl */ `{
    let a_step = ${at} * ${aSize}u + a_group + ${inner * aStep}u;
    let b_step = ${at} * ${bSize}u + b_group + ${inner * bStep}u;
    ${lines(matrixRows, (i) => `let left_${i} = subgroupMatrixLoad<subgroup_matrix_left<f16, ${SIDE}, ${SIDE}>, row_major>(&a_tile, a_step + ${i * SIDE * aStride}u, ${aStride}u);`)}
    ${lines(
      matrixColumns,
      (j) => `{
      let right = subgroupMatrixLoad<subgroup_matrix_right<f16, ${SIDE}, ${SIDE}>, ${rowsOfB === "k" ? "col_major" : "row_major"}>(&b_tile, b_step + ${j * right}u, ${bStride}u);
      ${lines(matrixRows, (i) => `sum_${i}_${j} = subgroupMatrixMultiplyAccumulate(left_${i}, right, sum_${i}_${j});`)}
    }`,
    )}
  }`;
  const multiply = (at: string) => lines(depth / SIDE, (inner) => multiplyStep(at, inner));

  return {
    name: `tensor-product ${tensorTileName(settings)} ${rowsOfB}-${dtype}${isPacked ? " packed" : ""}`,
    enables: ["f16", "subgroups", "chromium_experimental_subgroup_matrix"],
    buffers: {
      c: "f32",
      a: "vec4<u32>",
      a_scales: "f32",
      b: isPacked ? "vec4<u32>" : "read vec4<u32>",
      ...(isPacked && { b_scales: "f32" }),
    } as Record<"c" | "a" | "a_scales" | "b" | "b_scales", ElementType | `read ${ElementType}`>,
    ints: [
      "m",
      "n",
      "c_stride",
      "accumulate",
      "a_chunks",
      "b_chunks",
      "b_last",
      "tiles_down",
      "tiles_across",
      "parts",
      "steps",
      "part_steps",
      "part_size",
    ],
    code: /* wgsl */ `
var<workgroup> a_tile: array<${elementType}, ${BUFFERS * aSize}>;
var<workgroup> b_tile: array<${elementType}, ${BUFFERS * bSize}>;
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
  let b_group = ${rowsOfB === "k" ? `group_column * ${bStride}u` : `group_column / ${ELEMENT}u`};
  ${matrices.map(([i, j]) => `var sum_${i}_${j} = subgroup_matrix_result<f32, ${SIDE}, ${SIDE}>();`).join("\n")}
  ${lines(aChunks, (i) => `var next_a_${i}: vec4u;`)}
  ${lines(bChunks, (i) => `var next_b_${i}: vec4u;`)}

  let first = part * p.part_steps;
  let last = min(first + p.part_steps, p.steps);
  ${fetch("first")}
  ${stage("0u")}
  workgroupBarrier();
  var at = 0u;
  for (var step = first; step < last; step++) {
    if (step + 1u < last) { ${fetch("(step + 1u)")} }
    ${multiply("at")}
    at = 1u - at;
    if (step + 1u < last) { ${stage("at")} }
    workgroupBarrier();
  }

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

/** Four values of a side as float16. */
const half = (name: "a" | "b", dtype: "BF16" | "F16") =>
  dtype === "F16"
    ? `fn ${name}_half4(words: vec2u) -> vec4<f16> { return bitcast<vec4<f16>>(words); }`
    : /* wgsl */ `
fn ${name}_half4(words: vec2u) -> vec4<f16> {
  let wide = vec4u(words.x << 16u, words.x & 0xffff0000u, words.y << 16u, words.y & 0xffff0000u);
  return vec4<f16>(bitcast<vec4f>(wide));
}`;
