import type { F32, StridedRows } from "../kernels.js";
import type { GpuDevice } from "./gpu-device.js";
import type { ElementType } from "./shader.js";

/**
 * How a workgroup cuts an attention matrix: `down` x `across` threads, each with `rows` rows (a multiple of four) and
 * four columns of it. Rows of queries, keys and values pass through workgroup memory `depth` vec4 at a time where
 * scores are computed, and `staged` rows (a multiple of four) at a time where they are weighted and added up.
 */
export interface AttentionTile {
  across: number;
  down: number;
  rows: number;
  depth: number;
  staged: number;
  /** The next values are read into registers while threads compute; this pays if a processor has few threads at once. */
  isAhead: boolean;
}

/** How heads are read. */
export interface HeadLayout {
  headDim: number;
  /** All buffers of float32 can be read as vec4. */
  isVector: boolean;
}

/** A variant of the attention shaders. */
export interface AttentionVariant extends HeadLayout {
  tile: AttentionTile;
}

/** Below every score: what is not to be seen. */
export const UNSEEN = "-3.0e38";

/** Best first. */
const TILES: readonly AttentionTile[] = [
  { across: 16, down: 16, rows: 4, depth: 8, staged: 16, isAhead: true },
  { across: 16, down: 16, rows: 4, depth: 4, staged: 8, isAhead: false },
  { across: 16, down: 8, rows: 4, depth: 4, staged: 8, isAhead: false },
  { across: 8, down: 8, rows: 4, depth: 4, staged: 4, isAhead: false },
];
/** Where the GPU is software: little to compile. */
const SOFTWARE_TILE: AttentionTile = {
  across: 8,
  down: 4,
  rows: 4,
  depth: 1,
  staged: 4,
  isAhead: false,
};
/** Besides the tiles: what a workgroup knows about its sequence. */
const SPAN_BYTES = 64;

/** The numbers that follow from a variant; widths of heads are in vec4. */
export function measure({ headDim, tile }: AttentionVariant) {
  const { across, down, rows, staged } = tile;
  const width = Math.ceil(headDim / 4);
  const chunks = Math.ceil(width / tile.depth);
  const depth = Math.ceil(width / chunks);
  const columns = Math.ceil(width / across);
  return {
    width,
    chunks,
    depth,
    /** vec4 columns of a head that each thread adds up. */
    columns,
    threads: across * down,
    tileRows: rows * down,
    tileColumns: 4 * across,
    staged: Math.min(staged, 4 * across),
  };
}

const bytesOf = (variant: AttentionVariant): number => {
  const { threads, depth, tileRows, tileColumns, staged, columns } = measure(variant);
  const { across, rows } = variant.tile;
  const vectors =
    (tileRows + tileColumns) * (depth | 1) +
    tileRows * (staged / 4) +
    staged * across * columns +
    threads * (rows / 4);
  return 16 * vectors + SPAN_BYTES;
};

/** The tiles that fit the device's workgroup memory, best first. */
export function tilesFor(headDim: number, { limits }: GPUDevice, tiles = TILES): AttentionTile[] {
  return tiles.filter(
    (tile) =>
      tile.across * tile.down <= limits.maxComputeInvocationsPerWorkgroup &&
      bytesOf({ headDim, isVector: true, tile }) <= limits.maxComputeWorkgroupStorageSize,
  );
}

/** The best of them; on software the one that takes the least compiling. */
export function chooseTile(headDim: number, { device, info }: GpuDevice): AttentionTile {
  if (info.isSoftware) return SOFTWARE_TILE;
  const [tile] = tilesFor(headDim, device);
  if (!tile) throw new Error(`a workgroup of this GPU has no room for heads of ${headDim} values`);
  return tile;
}

/** Whether heads can be read four values at a time. */
export const isAligned = (headDim: number, matrices: Record<string, StridedRows>): boolean =>
  headDim % 4 === 0 &&
  Object.values(matrices).every(({ data, stride }) => stride % 4 === 0 && data.offset % 16 === 0);

/** The type of the buffers of float32. */
export const elementOf = ({ isVector }: HeadLayout): ElementType => (isVector ? "vec4<f32>" : "f32");

/** The names of the strides of some matrices. */
export const strideNames = <Name extends string>(...names: Name[]) =>
  names.map((name) => `${name}_stride` as const);

/** Matrices as a run takes them: their buffers and their strides, by their names in the shader. */
export function bindRows<Name extends string>({ isVector }: HeadLayout, matrices: Record<Name, StridedRows>) {
  const buffers = {} as Record<Name, F32>;
  const strides = {} as Record<`${Name}_stride`, number>;
  for (const name in matrices) {
    const { data, stride } = matrices[name];
    buffers[name] = data;
    strides[`${name}_stride`] = isVector ? stride / 4 : stride;
  }
  return { buffers, strides };
}

/** WGSL for each of `count` indices: what a compiler may not unroll, and what is to stay in registers. */
export const each = (count: number, make: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => make(index)).join("\n");

/** `load_NAME(row, head, column)`: four values of a head, nothing beyond its end; `stored` says in WGSL where its row is. */
export function loader({ headDim, isVector }: HeadLayout, name: string, stored = "row"): string {
  const width = Math.ceil(headDim / 4);
  if (isVector)
    return /* wgsl */ `
fn load_${name}(row: u32, head: u32, column: u32) -> vec4<f32> {
  return ${name}[p.${name}_at + ${stored} * p.${name}_stride + head * ${width}u + column];
}`;
  const component = (index: number) =>
    `if (4u * column + ${index}u < ${headDim}u) { values[${index}] = ${name}[start + ${index}u]; }`;
  return /* wgsl */ `
fn load_${name}(row: u32, head: u32, column: u32) -> vec4<f32> {
  let start = p.${name}_at + ${stored} * p.${name}_stride + head * ${headDim}u + 4u * column;
  var values = vec4<f32>();
  ${each(4, component)}
  return values;
}`;
}

/** `store_NAME(row, head, column, values)`. */
export function storer({ headDim, isVector }: HeadLayout, name: string, stored = "row"): string {
  const width = Math.ceil(headDim / 4);
  if (isVector)
    return /* wgsl */ `
fn store_${name}(row: u32, head: u32, column: u32, values: vec4<f32>) {
  ${name}[p.${name}_at + ${stored} * p.${name}_stride + head * ${width}u + column] = values;
}`;
  const component = (index: number) =>
    `if (4u * column + ${index}u < ${headDim}u) { ${name}[start + ${index}u] = values[${index}]; }`;
  return /* wgsl */ `
fn store_${name}(row: u32, head: u32, column: u32, values: vec4<f32>) {
  let start = p.${name}_at + ${stored} * p.${name}_stride + head * ${headDim}u + 4u * column;
  ${each(4, component)}
}`;
}

/** The workgroup's memory. */
export function tileMemory(variant: AttentionVariant): string {
  const { depth, tileRows, tileColumns, staged, columns, threads } = measure(variant);
  const { across, rows } = variant.tile;
  return /* wgsl */ `
var<workgroup> left: array<array<vec4<f32>, ${depth | 1}>, ${tileRows}>;
var<workgroup> right: array<array<vec4<f32>, ${depth | 1}>, ${tileColumns}>;
var<workgroup> weights: array<array<vec4<f32>, ${staged / 4}>, ${tileRows}>;
var<workgroup> added: array<array<vec4<f32>, ${across * columns}>, ${staged}>;
var<workgroup> partial: array<array<vec4<f32>, ${threads}>, ${rows / 4}>;
`;
}

/**
 * `find_span`: a workgroup works on rows `span.x`.. of the sequence that ends at `span.y` and begins at `span.z`.
 * Sequence s owns the tiles from floor(offsets[s] / rows of a tile) + s on: enough of them, and no one has to
 * count; a tile that begins beyond its sequence's end has nothing to do.
 */
export function spanFinder(variant: AttentionVariant): string {
  const { tileRows, threads } = measure(variant);
  return /* wgsl */ `
var<workgroup> span: vec3u;

fn find_span(tile: u32, lane: u32) -> vec3u {
  for (var sequence = lane; sequence < p.sequences; sequence += ${threads}u) {
    let start = u32(offsets[p.offsets_at + sequence]);
    let end = u32(offsets[p.offsets_at + sequence + 1u]);
    let first = start / ${tileRows}u + sequence;
    if (tile >= first && tile < end / ${tileRows}u + sequence + 1u) {
      span = vec3u(start + (tile - first) * ${tileRows}u, end, start);
    }
  }
  return workgroupUniformLoad(&span);
}`;
}

/** How many tiles `find_span` shares out. */
export const tileCount = (variant: AttentionVariant, rows: number, sequences: number): number =>
  Math.floor(rows / measure(variant).tileRows) + sequences;

/** Rows from some matrix: `load_NAME(first + index, head, column)` up to row `end`. */
interface TileOperand {
  name: string;
  first: string;
  end: string;
  head: string;
}

/** Brings rows of `width` vec4 from column `column` on into workgroup memory by way of registers; rows beyond the last repeat it, columns beyond are zero. */
interface Staging {
  operand: TileOperand;
  /** Rows come after the operand's first by this many. */
  skipped?: string;
  rows: number;
  width: number;
  column?: string;
  /** Code for each row in workgroup memory, by its number `r`. */
  target: string;
}

function staging(variant: AttentionVariant, prefix: string, stage: Staging) {
  const { threads, width: headWidth } = measure(variant);
  const { operand, skipped = "0u", rows, width, column = "0u", target } = stage;
  const count = rows * width;
  const turns = Math.ceil(count / threads);
  const at = (turn: number) => `(lane + ${turn * threads}u)`;
  const isWhole = (turn: number) => (turn + 1) * threads <= count;
  const from = (turn: number) => `${column} + ${at(turn)} % ${width}u`;
  const load = (turn: number) => {
    const row = `min(${operand.first} + ${skipped} + ${at(turn)} / ${width}u, ${operand.end} - 1u)`;
    const loaded = (from: string) => `load_${operand.name}(${row}, ${operand.head}, ${from})`;
    return headWidth % width === 0
      ? `${prefix}${turn} = ${loaded(from(turn))};`
      : /* wgsl */ `
      ${prefix}${turn} = select(
        vec4<f32>(),
        ${loaded(`min(${from(turn)}, ${headWidth - 1}u)`)},
        ${from(turn)} < ${headWidth}u,
      );`;
  };
  const store = (turn: number) => /* wgsl */ `
      { let r = ${at(turn)} / ${width}u; ${target}[${at(turn)} % ${width}u] = ${prefix}${turn}; }`;
  const guarded = (turn: number, code: string) =>
    isWhole(turn) ? code : `if (${at(turn)} < ${count}u) { ${code} }`;
  return {
    declare: each(turns, (turn) => `var ${prefix}${turn} = vec4<f32>();`),
    load: each(turns, (turn) => guarded(turn, load(turn))),
    store: each(turns, (turn) => guarded(turn, store(turn))),
  };
}

/** For `index` below `count`: everything staged in, then `compute`; what comes next is read before, if the tile is ahead. */
function stagedLoop(
  { tile }: AttentionVariant,
  index: string,
  count: number,
  stages: ReturnType<typeof staging>[],
  compute: string,
  store = "",
): string {
  const all = (part: "declare" | "load" | "store") => stages.map((stage) => stage[part]).join("\n");
  const loop = (before: string, between: string) => /* wgsl */ `
  {
    ${all("declare")}
    var ${index} = 0u;
    ${before}
    loop {
      workgroupBarrier();
      ${tile.isAhead ? "" : all("load")}
      ${all("store")}
      ${store}
      workgroupBarrier();
      ${between}
      ${compute}
      ${tile.isAhead ? "" : `${index}++;`}
      if (${index} >= ${count}u) { break; }
    }
  }`;
  return tile.isAhead
    ? loop(all("load"), `${index}++; if (${index} < ${count}u) { ${all("load")} }`)
    : loop("", "");
}

/**
 * `NAME0`.. (a vec4 of four columns for each row of the thread) = the products of the left rows with the right ones.
 * Column 4t + j of the tile is kept at j * across + t, so that neighbours in a row of threads read neighbours in memory.
 */
export function scores(
  variant: AttentionVariant,
  name: string,
  left: TileOperand,
  right: TileOperand,
): string {
  const { chunks, depth, tileRows, tileColumns } = measure(variant);
  const { across, rows } = variant.tile;
  const shared = { width: depth, column: `chunk * ${depth}u` };
  const stages = [
    staging(variant, "left_staged", { ...shared, operand: left, rows: tileRows, target: "left[r]" }),
    staging(variant, "right_staged", {
      ...shared,
      operand: right,
      rows: tileColumns,
      target: `right[(r & 3u) * ${across}u + (r >> 2u)]`,
    }),
  ];
  const terms = (row: number, c: number) => /* wgsl */ `
      {
        let l = left[thread_row + ${row}u][${c}];
        ${name}${row} += l.x * x;
        ${name}${row} += l.y * y;
        ${name}${row} += l.z * z;
        ${name}${row} += l.w * w;
      }`;
  const compute = each(
    depth,
    (c) => /* wgsl */ `
    {
      ${each(4, (j) => `let r${j} = right[${j * across}u + thread_column][${c}];`)}
      let x = vec4(r0.x, r1.x, r2.x, r3.x);
      let y = vec4(r0.y, r1.y, r2.y, r3.y);
      let z = vec4(r0.z, r1.z, r2.z, r3.z);
      let w = vec4(r0.w, r1.w, r2.w, r3.w);
      ${each(rows, (row) => terms(row, c))}
    }`,
  );
  return /* wgsl */ `
  ${each(rows, (row) => `var ${name}${row} = vec4<f32>();`)}
  ${stagedLoop(variant, "chunk", chunks, stages, compute)}`;
}

/** `NAME_ROW_COLUMN` += weights * rows of `operand`; the threads' `WEIGHT0`.. are the weights, handed to the others a few columns at a time. */
export function addWeighted(
  variant: AttentionVariant,
  name: string,
  weight: string,
  operand: TileOperand,
): string {
  const { columns, staged, tileColumns, width } = measure(variant);
  const { across, rows } = variant.tile;
  const quarters = staged / 4;
  const stages = [
    staging(variant, "staged", {
      operand,
      skipped: `part * ${staged}u`,
      rows: staged,
      width,
      target: "added[r]",
    }),
  ];
  const compute = each(
    quarters,
    (quarter) => /* wgsl */ `
    {
      ${each(4, (j) => each(columns, (c) => `let v${j}_${c} = added[${4 * quarter + j}][${c * across}u + thread_column];`))}
      ${each(
        rows,
        (row) => /* wgsl */ `
      {
        let weight = weights[thread_row + ${row}u][${quarter}];
        ${each(
          columns,
          (c) => /* wgsl */ `
        ${name}${row}_${c} += weight.x * v0_${c};
        ${name}${row}_${c} += weight.y * v1_${c};
        ${name}${row}_${c} += weight.z * v2_${c};
        ${name}${row}_${c} += weight.w * v3_${c};`,
        )}
      }`,
      )}
    }`,
  );
  const share = /* wgsl */ `
      if (thread_column / ${quarters}u == part) {
        ${each(rows, (row) => `weights[thread_row + ${row}u][thread_column % ${quarters}u] = ${weight}${row};`)}
      }`;
  return stagedLoop(variant, "part", tileColumns / staged, stages, compute, share);
}

/** The sums of `addWeighted`, at zero. */
export function sums(variant: AttentionVariant, name: string): string {
  const { columns } = measure(variant);
  return each(variant.tile.rows, (row) => each(columns, (c) => `var ${name}${row}_${c} = vec4<f32>();`));
}

/** Writes the sums, each row's times a factor, into rows `span.x`.. up to `span.y`. */
export function storeSums(
  variant: AttentionVariant,
  name: string,
  target: { name: string; head: string; factor?: (row: number) => string },
): string {
  const { columns, width } = measure(variant);
  const { across, rows } = variant.tile;
  const column = (c: number) => `${c * across}u + thread_column`;
  const value = (row: number, c: number) =>
    target.factor ? `${name}${row}_${c} * ${target.factor(row)}` : `${name}${row}_${c}`;
  const store = (row: number, c: number) =>
    `if (${column(c)} < ${width}u) { store_${target.name}(row, ${target.head}, ${column(c)}, ${value(row, c)}); }`;
  return each(
    rows,
    (row) => /* wgsl */ `
  {
    let row = first_row + thread_row + ${row}u;
    if (row < end) { ${each(columns, (c) => store(row, c))} }
  }`,
  );
}
