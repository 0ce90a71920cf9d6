import type { AddLowRank } from "../few-rows.js";
import { windowOver } from "./device-memory.js";
import { range } from "./product-dots.js";
import { MAX_GROUPS, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Columns of a workgroup, one for each thread, and rows. */
const [COLUMNS, ROWS] = [64, 8];
/** Values of a column of B that are read before the first is multiplied. */
const READ_AHEAD = 4;
/** Beyond these, products one by one read less, or workgroup memory ends. */
const [MAX_ROWS, MAX_RANK] = [256, 256];

const SHADER = shaderVariants(({ parts, maxRank }: { parts: number; maxRank: number }) => ({
  name: `add-low-rank ${parts} ${maxRank}`,
  buffers: { out: "f32", low_rank: "f32", adapter: "f32" } as const,
  ints: [
    ...["rows", "rank", "width", "stride"],
    ...range(parts).flatMap((part) => [`groups${part}`, `cols${part}`, `column${part}`, `b${part}`]),
  ],
  floats: ["factor"],
  code: /* wgsl */ `
var<workgroup> low: array<array<f32, ${ROWS}>, ${maxRank}>;

@compute @workgroup_size(${COLUMNS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  // Each part has its own workgroups.
  var index = group.x;
  var part = 0u;
  var cols = p.cols0;
  var column_at = p.column0;
  var b_at = p.b0;
  ${range(parts - 1)
    .map(
      (before) => /* wgsl */ `if (part == ${before}u && index >= p.groups${before}) {
    index -= p.groups${before};
    part = ${before + 1}u;
    cols = p.cols${before + 1};
    column_at = p.column${before + 1};
    b_at = p.b${before + 1};
  }`,
    )
    .join("\n  ")}
  let first_row = group.y * ${ROWS}u;
  for (var i = lane; i < p.rank * ${ROWS}u; i += ${COLUMNS}u) {
    let row = min(first_row + i / p.rank, p.rows - 1u);
    low[i % p.rank][i / p.rank] = low_rank[p.low_rank_at + row * p.width + part * p.rank + i % p.rank] * p.factor;
  }
  workgroupBarrier();
  let column = index * ${COLUMNS}u + lane;
  if (column >= cols) { return; }
  let start = p.adapter_at + b_at + column;
  ${range(ROWS)
    .map((row) => `var sum${row} = 0.0;`)
    .join(" ")}
  for (var first = 0u; first < p.rank; first += ${READ_AHEAD}u) {
    ${range(READ_AHEAD)
      .map((i) => `let v${i} = adapter[start + min(first + ${i}u, p.rank - 1u) * cols];`)
      .join("\n    ")}
    ${range(READ_AHEAD)
      .map(
        (i) => /* wgsl */ `if (first + ${i}u < p.rank) {
      ${range(ROWS)
        .map((row) => `sum${row} += low[first + ${i}u][${row}] * v${i};`)
        .join(" ")}
    }`,
      )
      .join("\n    ")}
  }
  let out_at = p.out_at + first_row * p.stride + column_at + column;
  ${range(ROWS)
    .map((row) => `if (first_row + ${row}u < p.rows) { out[out_at + ${row}u * p.stride] += sum${row}; }`)
    .join("\n  ")}
}`,
}));

/** One run for all B of a group; false where they are better multiplied one by one. */
export function addLowRank({ queue, gpu }: GpuContext, operation: AddLowRank): boolean {
  const { out, stride, rows, lowRank, group, factor } = operation;
  const { rank, b } = group;
  if (rows === 0 || rows > MAX_ROWS || rank > MAX_RANK) return false;
  const { window, starts } = windowOver(...b.map(({ matrix }) => matrix));
  if (4 * window.length + 256 > gpu.device.limits.maxStorageBufferBindingSize) return false;
  const groups = b.map(({ cols }) => Math.ceil(cols / COLUMNS));
  const all = groups.reduce((sum, each) => sum + each, 0);
  if (all > MAX_GROUPS) return false;
  const params: Record<string, number> = { rows, rank, width: b.length * rank, stride, factor };
  b.forEach(({ column, cols }, part) => {
    params[`groups${part}`] = groups[part]!;
    params[`cols${part}`] = cols;
    params[`column${part}`] = column;
    params[`b${part}`] = starts[part]!;
  });
  const maxRank = 2 ** Math.ceil(Math.log2(rank));
  queue.run(SHADER({ parts: b.length, maxRank }), {
    buffers: { out, low_rank: lowRank, adapter: window },
    params,
    workgroups: [all, Math.ceil(rows / ROWS)],
  });
  return true;
}
