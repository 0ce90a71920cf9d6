import type { F32 } from "../kernels.js";
import {
  fourOfC,
  fourValues,
  isVectorRows,
  layoutName,
  type OperandLayout,
  operandElement,
  operandsOf,
  PRODUCT_PARAMS,
  type Product,
  productParams,
} from "./product-operands.js";
import { sumParts, type TileSides } from "./product-parts.js";
import { shaderVariants } from "./shader.js";
import { roomyRows } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** How a product is cut, and what a thread computes of a tile. */
export interface Tile extends TileSides {
  threadRows: number;
  threadColumns: number;
  /** Staged tiles held at once: with 2, the next is written while this one is read. */
  buffers: 1 | 2;
  /** Staged rows are one vector longer than the tile, so that writing them meets fewer bank conflicts. */
  isPadded: boolean;
  /** Steps along k that are written out; the others are a loop. */
  unroll: number;
  /** Threads of a workgroup that share the same part of c are so many, each with steps of its own; their sums are added. */
  teams: number;
}

interface TileShader extends Tile {
  a: OperandLayout;
  b: OperandLayout;
  isVectorC: boolean;
  /** The last step reaches beyond k. */
  isRaggedK: boolean;
}

/** Lanes that run in step lie in this many columns of threads, so that their reads of staged values share banks. */
const LANE_COLUMNS = [8, 4, 2, 1];
const LANES = 32;

const range = (count: number) => Array.from({ length: count }, (_, index) => index);

/** Threads in a workgroup. */
export const tileThreads = (tile: Tile) =>
  (tile.rows / tile.threadRows) * (tile.columns / tile.threadColumns) * tile.teams;

/** Workgroup memory of a tile. */
export function tileBytes({ rows, columns, depth, buffers, isPadded, teams }: Tile): number {
  const sums = teams > 1 ? rows * columns : 0;
  return 4 * (buffers * depth * (rows + columns + (isPadded ? 8 : 0)) + sums);
}

const TILE_SHADER = shaderVariants((settings: TileShader) => {
  const { a, b, rows, columns, depth, buffers, isPadded, teams } = settings;
  const threads = tileThreads(settings);
  const [threadsDown, threadsAcross] = [rows / settings.threadRows, columns / settings.threadColumns];
  const teamThreads = threads / teams;
  const teamSteps = depth / teams;
  const lanes = Math.min(LANES, teamThreads);
  const laneColumns = LANE_COLUMNS.find((count) => threadsAcross % count === 0)!;
  const laneRows = lanes / laneColumns;
  const [quadRows, quadColumns] = [range(settings.threadRows / 4), range(settings.threadColumns / 4)];
  const padding = isPadded ? 1 : 0;
  const staged = (outer: number) =>
    `array<array<array<vec4f, ${outer / 4 + padding}>, ${depth}>, ${buffers}>`;

  // Blocks of 4 x 4 values are staged in one step, those of a first, at least one for each thread.
  const blocksOfA = (rows / 4) * (depth / 4);
  const blocks = blocksOfA + (columns / 4) * (depth / 4);
  const slots = range(Math.ceil(blocks / threads));
  const eachSlot = (write: (slot: number, side: "a" | "b", block: string) => string) =>
    slots
      .map((slot) => {
        const [start, end] = [slot * threads, (slot + 1) * threads];
        const index = `lane + ${start}u`;
        const [left, right] = [write(slot, "a", index), write(slot, "b", `${index} - ${blocksOfA}u`)];
        if (end <= blocksOfA) return left;
        const onRight = end > blocks ? `if (${index} < ${blocks}u) { ${right} }` : right;
        if (start >= blocksOfA) return onRight;
        return `if (${index} < ${blocksOfA}u) { ${left} } else { ${onRight} }`;
      })
      .join("\n");
  const load = eachSlot((slot, side, block) => `stage${slot} = load_${side}(${block}, first_${side}, k);`);
  const store = eachSlot((slot, side, block) => `store_${side}(${block}, into, stage${slot});`);

  const step = (k: string) => /* wgsl */ `{
${quadRows.map((r) => `let a${r} = staged_a[now][${k}][quad_row + ${r * threadsDown}u];`).join("\n")}
${quadColumns.map((q) => `let b${q} = staged_b[now][${k}][quad_column + ${q * threadsAcross}u];`).join("\n")}
${quadRows
  .flatMap((r) =>
    ["x", "y", "z", "w"].flatMap((i) => quadColumns.map((q) => `c${r}${i}${q} += a${r}.${i} * b${q};`)),
  )
  .join("\n")}
}`;
  // Written out, the staged values are at constant places: no bounds checks, no address arithmetic.
  const first = teams > 1 ? "team_step + " : "";
  const steps =
    settings.unroll >= teamSteps
      ? range(teamSteps)
          .map((k) => step(`${first}${k}`))
          .join("\n")
      : `for (var step = 0u; step < ${teamSteps}u; step += ${settings.unroll}u) {
${range(settings.unroll)
  .map((k) => step(`${first}step + ${k}u`))
  .join("\n")}
}`;
  const eachSum = (write: (r: number, i: string, at: number, q: number) => string) =>
    quadRows
      .flatMap((r) => ["x", "y", "z", "w"].flatMap((i, at) => quadColumns.map((q) => write(r, i, at, q))))
      .join("\n");

  const rowOf = (r: number, at: number) => `first_a + 4u * (quad_row + ${r * threadsDown}u) + ${at}u`;
  const columnOf = (q: number) => `first_b + 4u * (quad_column + ${q * threadsAcross}u)`;
  const sumOf = (r: number, i: string, q: number) => (4 * r + "xyzw".indexOf(i)) * quadColumns.length + q;

  return {
    name: `product-tile ${layoutName(a)} ${layoutName(b)} ${tileName(settings)}${settings.isVectorC ? " c4" : ""}${settings.isRaggedK ? " ragged" : ""}`,
    buffers: {
      c: settings.isVectorC ? "vec4<f32>" : "f32",
      a: operandElement(a),
      b: a.dtype === b.dtype ? operandElement(b) : `read ${operandElement(b)}`,
    },
    // Each part of k is summed by itself and written so many elements behind the one before.
    ints: [...PRODUCT_PARAMS, "part_k", "part_stride"],
    code: /* wgsl */ `
${fourValues("a", a, a.contiguous === "k" ? "p.k" : "p.m")}
${fourValues("b", b, b.contiguous === "k" ? "p.k" : "p.n")}
${loadBlock("a", settings, rows, "p.m")}
${loadBlock("b", settings, columns, "p.n")}
${fourOfC(settings.isVectorC)}

var<workgroup> staged_a: ${staged(rows)};
var<workgroup> staged_b: ${staged(columns)};
${teams > 1 ? `var<workgroup> sums: array<array<vec4f, ${teamThreads}>, ${(rows * columns) / 4 / teamThreads}>;` : ""}
${storeBlock("a", settings, rows)}
${storeBlock("b", settings, columns)}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let first_a = group.x * ${rows}u;
  let first_b = group.y * ${columns}u;
  let member = lane % ${teamThreads}u;
  let team = lane / ${teamThreads}u;
  let team_step = team * ${teamSteps}u;
  let block = member / ${lanes}u;
  let quad_column = member % ${laneColumns}u + ${laneColumns}u * (block % ${threadsAcross / laneColumns}u);
  let quad_row = member / ${laneColumns}u % ${laneRows}u + ${laneRows}u * (block / ${threadsAcross / laneColumns}u);
  ${eachSum((r, i, _, q) => `var c${r}${i}${q} = vec4f();`)}
  // Old values of c are read first, so that they arrive while the first values are staged.
  if (p.accumulate != 0u && team == 0u) {
    ${eachSum((r, i, at, q) => `c${r}${i}${q} = read_c(${rowOf(r, at)}, ${columnOf(q)});`)}
  }
  ${slots.map((slot) => `var stage${slot}: mat4x4f;`).join("\n")}

  var k = group.z * p.part_k;
  let end = min(k + p.part_k, p.k);
  var now = 0u;
  {
    let into = 0u;
    ${load}
    ${store}
  }
  workgroupBarrier();
  loop {
    k += ${depth}u;
    let is_more = k < end;
    if (is_more) {
      ${load}
    }
    ${steps}
    if (!is_more) { break; }
    ${buffers === 2 ? "let into = 1u - now;" : "let into = 0u; workgroupBarrier();"}
    ${store}
    workgroupBarrier();
    now = into;
  }

  ${
    teams > 1
      ? `for (var other = 1u; other < ${teams}u; other++) {
    if (team == other) { ${eachSum((r, i, _, q) => `sums[${sumOf(r, i, q)}][member] = c${r}${i}${q};`)} }
    workgroupBarrier();
    if (team == 0u) { ${eachSum((r, i, _, q) => `c${r}${i}${q} += sums[${sumOf(r, i, q)}][member];`)} }
    workgroupBarrier();
  }
  if (team > 0u) { return; }`
      : ""
  }
  let start = group.z * p.part_stride;
  ${eachSum((r, i, at, q) => `write_c(start, ${rowOf(r, at)}, ${columnOf(q)}, c${r}${i}${q});`)}
}`,
  };
});

/** `load_SIDE(block, first, k)`: 4 x 4 values, a column for each of four k. Beyond the matrix anything, beyond k zeros. */
function loadBlock(side: "a" | "b", settings: TileShader, outerSize: number, outerEnd: string): string {
  const { contiguous } = settings[side];
  const blocksOfK = settings.depth / 4;
  const four = range(4);
  const inside = (value: string, k: string) =>
    settings.isRaggedK ? `select(vec4f(), ${value}, ${k} < p.k)` : value;
  if (contiguous === "k") {
    const lines = four.map((i) =>
      inside(
        `${side}_four(min(outer + ${i}u, ${outerEnd} - 1u), ${settings.isRaggedK ? "min(k, (p.k - 1u) / 4u * 4u)" : "k"})`,
        "k",
      ),
    );
    return /* wgsl */ `fn load_${side}(block: u32, first: u32, first_k: u32) -> mat4x4f {
  let outer = first + 4u * (block / ${blocksOfK}u);
  let k = first_k + 4u * (block % ${blocksOfK}u);
  return transpose(mat4x4f(${lines.join(", ")}));
}`;
  }
  const lines = four.map((i) => {
    const k = `k + ${i}u`;
    return inside(`${side}_four(${settings.isRaggedK ? `min(${k}, p.k - 1u)` : k}, outer)`, k);
  });
  return /* wgsl */ `fn load_${side}(block: u32, first: u32, first_k: u32) -> mat4x4f {
  let outer = min(first + 4u * (block % ${outerSize / 4}u), (${outerEnd} - 1u) / 4u * 4u);
  let k = first_k + 4u * (block / ${outerSize / 4}u);
  return mat4x4f(${lines.join(", ")});
}`;
}

function storeBlock(side: "a" | "b", settings: TileShader, outerSize: number): string {
  const blocksOfK = settings.depth / 4;
  const [outer, k] =
    settings[side].contiguous === "k"
      ? [`block / ${blocksOfK}u`, `4u * (block % ${blocksOfK}u)`]
      : [`block % ${outerSize / 4}u`, `4u * (block / ${outerSize / 4}u)`];
  return /* wgsl */ `fn store_${side}(block: u32, into: u32, values: mat4x4f) {
  let outer = ${outer};
  let k = ${k};
  ${range(4)
    .map((i) => `staged_${side}[into][k + ${i}u][outer] = values[${i}];`)
    .join("\n  ")}
}`;
}

/** A tile in short, for names and tables. */
export const tileName = (tile: Tile) =>
  `${tile.rows}x${tile.columns}x${tile.depth}/${tile.threadRows}x${tile.threadColumns}${tile.buffers === 2 ? " double" : ""}${tile.isPadded ? " padded" : ""}${tile.unroll < tile.depth / tile.teams ? ` unroll ${tile.unroll}` : ""}${tile.teams > 1 ? ` teams ${tile.teams}` : ""}`;

/** A product in tiles; with more than one part, k is cut and the parts are added in order. */
export function multiplyTiles(context: GpuContext, product: Product, tile: Tile, parts: number): void {
  const { c, m, n, k, accumulate = false } = product;
  const { a, b } = operandsOf(product);
  const ldc = product.ldc ?? n;
  const partK = Math.ceil(k / parts / tile.depth) * tile.depth;
  const usedParts = Math.ceil(k / partK);
  const run = (out: F32, stride: number, adds: boolean) =>
    context.queue.run(
      TILE_SHADER({
        ...tile,
        a: a.layout,
        b: b.layout,
        isVectorC: isVectorRows(out, n, stride),
        isRaggedK: k % tile.depth !== 0,
      }),
      {
        buffers: { c: out, a: a.handle, b: b.handle },
        params: { ...productParams(product, stride, adds, a, b), part_k: partK, part_stride: m * n },
        workgroups: [Math.ceil(m / tile.rows), Math.ceil(n / tile.columns), usedParts],
      },
    );
  if (usedParts === 1) {
    run(c, ldc, accumulate);
    return;
  }
  const mark = context.mark();
  const partial = context.scratch(usedParts * roomyRows(m) * n);
  run(partial, n, false);
  sumParts(context, product, partial, usedParts);
  context.release(mark);
}
