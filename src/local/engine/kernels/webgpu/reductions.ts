import type { F32 } from "../kernels.js";
import { defineShader } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Of the parts that sums over rows are made of. */
const MAX_ROW_PARTS = 128;
const MIN_PART_ROWS = 16;

/** The power of two that suits `count` values of work, within bounds that are powers of two. */
export function threadsFor(count: number, min: number, max: number): number {
  let threads = min;
  while (threads < count && threads < max) threads *= 2;
  return threads;
}

/**
 * `team_sum(v, lane)`: the sum over `team` neighbouring threads, the same to all of them, in a fixed order.
 * Once in a shader, where all threads come by.
 */
export const teamSumCode = (threads: number, team: number) => /* wgsl */ `
var<workgroup> team_sums: array<f32, ${threads}>;
fn team_sum(v: f32, lane: u32) -> f32 {
  team_sums[lane] = v;
  for (var reach = ${team}u / 2u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (lane % ${team}u < reach) { team_sums[lane] += team_sums[lane + reach]; }
  }
  workgroupBarrier();
  return team_sums[lane - lane % ${team}u];
}`;

const ADD_PARTS = defineShader({
  name: "add-parts",
  buffers: { sums: "f32", parts: "f32" },
  params: { cols: "u32", count: "u32" },
  code: /* wgsl */ `
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) thread: vec3u) {
  let col = thread.x;
  if (col >= p.cols) { return; }
  var sum = 0.0;
  for (var part = 0u; part < p.count; part++) { sum += parts[p.parts_at + part * p.cols + col]; }
  sums[p.sums_at + col] += sum;
}`,
});

/** `sums` += the sums of columns over many rows: `sumParts` writes those of each part of the rows, then they are added in order. */
export function addOverRows(
  context: GpuContext,
  sums: F32,
  rows: number,
  sumParts: (parts: F32, partRows: number, count: number) => void,
): void {
  const cols = sums.length;
  const partRows = Math.max(MIN_PART_ROWS, Math.ceil(rows / MAX_ROW_PARTS));
  const count = Math.ceil(rows / partRows);
  const mark = context.mark();
  const parts = context.scratch(count * cols);
  sumParts(parts, partRows, count);
  const workgroups = [Math.ceil(cols / 64), 1] as const;
  context.queue.run(ADD_PARTS, { buffers: { sums, parts }, params: { cols, count }, workgroups });
  context.release(mark);
}
