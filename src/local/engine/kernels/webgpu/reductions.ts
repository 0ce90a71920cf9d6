import type { F32 } from "../kernels.js";
import { defineShader } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Bounds for the parts into which sums over rows are cut. */
const MAX_ROW_PARTS = 128;
const MIN_PART_ROWS = 16;

/** The power of two that suits `count` values of work, within bounds that are powers of two. */
export function threadsFor(count: number, min: number, max: number): number {
  let threads = min;
  while (threads < count && threads < max) threads *= 2;
  return threads;
}

/** A reduction over `team` neighbouring threads of a workgroup, all of which get the result. */
export interface TeamReduction {
  /** Name of the function: `NAME(v, lane)`. */
  name: string;
  type: "f32" | "u32" | "vec2f";
  threads: number;
  team: number;
  /** Expression that joins `a` and `b`. */
  join: string;
}

/**
 * In a fixed order, with two barriers whatever the team's size: some threads join a share each, then every thread joins what
 * they have. Once in a shader, where all threads come by.
 */
export function reduceCode({ name, type, threads, team, join }: TeamReduction): string {
  const shares = threadsFor(Math.sqrt(team), 1, team);
  return /* wgsl */ `
var<workgroup> ${name}_inputs: array<${type}, ${threads}>;
var<workgroup> ${name}_shares: array<${type}, ${(threads / team) * shares}>;
fn ${name}_join(a: ${type}, b: ${type}) -> ${type} { return ${join}; }
fn ${name}(v: ${type}, lane: u32) -> ${type} {
  let member = lane % ${team}u;
  let share = (lane / ${team}u) * ${shares}u;
  ${name}_inputs[lane] = v;
  workgroupBarrier();
  if (member < ${shares}u) {
    var joined = v;
    for (var i = ${shares}u; i < ${team}u; i += ${shares}u) { joined = ${name}_join(joined, ${name}_inputs[lane + i]); }
    ${name}_shares[share + member] = joined;
  }
  workgroupBarrier();
  var joined = ${name}_shares[share];
  for (var i = 1u; i < ${shares}u; i++) { joined = ${name}_join(joined, ${name}_shares[share + i]); }
  return joined;
}`;
}

/** `team_sum(v, lane)`. */
export const teamSumCode = (threads: number, team: number) =>
  reduceCode({ name: "team_sum", type: "f32", threads, team, join: "a + b" });

const ADD_PARTS = defineShader({
  name: "add-parts",
  buffers: { sums: "f32", parts: "f32" },
  ints: ["cols", "count"],
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
