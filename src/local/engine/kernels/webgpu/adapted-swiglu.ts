import type { LowRankGroup } from "../few-rows.js";
import type { F32 } from "../kernels.js";
import { windowOver } from "./device-memory.js";
import { lowColumns, storeLowPartCode } from "./low-rank.js";
import { SIGMOID } from "./rows.js";
import { shaderVariants } from "./shader.js";
import { valueCode } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Values of a row that a workgroup activates, and of which it computes the part of the next layer's A. */
const SLICE = 128;

/** How many parts `lowRank` of the next layer has for each row. */
export const swigluParts = (cols: number) => Math.ceil(cols / SLICE);

/** out = silu(gate) * up, where B is added to both before; and out * A of the next layer, in parts. */
export interface AdaptedSwiglu {
  out: F32;
  gateUp: F32;
  rows: number;
  cols: number;
  /** Scaled, [rows, 2 * rank]. */
  lowRank: F32;
  adapter: LowRankGroup;
  next: LowRankGroup;
  /** [rows, parts, rank of `next`]. */
  nextLowRank: F32;
}

const SHADER = shaderVariants((columns: number) => ({
  name: `adapted-swiglu ${columns}`,
  buffers: { out: "f32", gate_up: "f32", low_rank: "f32", next_low_rank: "f32", adapter: "f32" } as const,
  ints: ["cols", "slices", "rank", "gate_b", "up_b", "out_rank", "out_a", "out_low"],
  code: /* wgsl */ `${valueCode(1)}
${SIGMOID}
var<workgroup> values_of_part: array<f32, ${SLICE}>;
${storeLowPartCode({ threads: SLICE, columns }, { output: "next_low_rank", adapter: "adapter" })}

@compute @workgroup_size(${SLICE})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = group.y;
  let first = group.x * ${SLICE}u;
  let column = min(first + lane, p.cols - 1u);
  let gate_up_at = p.gate_up_at + row * 2u * p.cols + column;
  let low_at = p.low_rank_at + row * 2u * p.rank;
  let b_at = p.adapter_at + column;
  var gate = gate_up[gate_up_at];
  var up = gate_up[gate_up_at + p.cols];
  var r = 0u;
  for (; r + 4u <= p.rank; r += 4u) {
    ${[0, 1, 2, 3].map((i) => `let gate${i} = adapter[b_at + p.gate_b + (r + ${i}u) * p.cols]; let up${i} = adapter[b_at + p.up_b + (r + ${i}u) * p.cols];`).join("\n    ")}
    ${[0, 1, 2, 3].map((i) => `gate += low_rank[low_at + r + ${i}u] * gate${i}; up += low_rank[low_at + p.rank + r + ${i}u] * up${i};`).join("\n    ")}
  }
  for (; r < p.rank; r++) {
    gate += low_rank[low_at + r] * adapter[b_at + p.gate_b + r * p.cols];
    up += low_rank[low_at + p.rank + r] * adapter[b_at + p.up_b + r * p.cols];
  }
  let value = gate * sigmoid(gate) * up;
  values_of_part[lane] = value;
  if (first + lane < p.cols) { out[p.out_at + row * p.cols + column] = value; }
  workgroupBarrier();
  store_low_part(first, min(${SLICE}u, p.cols - first), row * p.slices + group.x, lane);
}`,
}));

/** One run for B of gate and up, the activation, and A of what follows. */
export function adaptedSwiglu({ queue }: GpuContext, operation: AdaptedSwiglu): void {
  const { out, gateUp, rows, cols, lowRank, adapter, next, nextLowRank } = operation;
  const [gate, up] = adapter.b as [LowRankGroup["b"][0], LowRankGroup["b"][0]];
  const { window, starts } = windowOver(gate.matrix, up.matrix, next.a);
  const slices = swigluParts(cols);
  queue.run(SHADER(lowColumns(next.rank, SLICE)), {
    buffers: { out, gate_up: gateUp, low_rank: lowRank, next_low_rank: nextLowRank, adapter: window },
    params: {
      cols,
      slices,
      rank: adapter.rank,
      gate_b: starts[0]!,
      up_b: starts[1]!,
      out_rank: next.rank,
      out_a: starts[2]!,
      out_low: 0,
    },
    workgroups: [slices, rows],
  });
}
