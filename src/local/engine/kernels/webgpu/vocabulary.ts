import type { LogitsGradient, LogSoftmaxGather } from "../kernels.js";
import { defineShader, shaderVariants } from "./shader.js";
import { valueCode, valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

const THREADS = 256;
/** Logits that one workgroup reads. Rows are cut by their length alone: a row's bits do not depend on how many there are. */
const PART_LOGITS = 4096;

/** Below all logits that there are; WGSL has no infinity. */
const LOWEST = "-3.4e38";

/** `join`: the maximum and the sum of exponentials below it, of two sets of logits. What is far below may overflow otherwise. */
const JOIN = /* wgsl */ `
fn weight_of(difference: f32) -> f32 { return exp(max(difference, -200.0)); }
fn join(a: vec2f, b: vec2f) -> vec2f {
  let highest = max(a.x, b.x);
  return vec2f(highest, a.y * weight_of(a.x - highest) + b.y * weight_of(b.x - highest));
}`;

/** `join_all(v, lane)`: over all threads of the workgroup, for thread 0. */
const joinAllCode = (threads: number) => /* wgsl */ `
var<workgroup> joined: array<vec2f, ${threads}>;
fn join_all(v: vec2f, lane: u32) -> vec2f {
  joined[lane] = v;
  for (var reach = ${threads / 2}u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (lane < reach) { joined[lane] = join(joined[lane], joined[lane + reach]); }
  }
  workgroupBarrier();
  return joined[0];
}`;

const SOFTMAX_PARTS = shaderVariants((width: Width) => ({
  name: `softmax-parts ${width}`,
  buffers: { parts: "f32", logits: valueType(width) } as const,
  params: { count: "u32", vocab: "u32", row_parts: "u32" } as const,
  code: /* wgsl */ `${valueCode(width)}
${JOIN}
${joinAllCode(THREADS)}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let part = flat(group);
  if (part >= p.count) { return; }
  let row = part / p.row_parts;
  let first = (part - row * p.row_parts) * ${PART_LOGITS / width}u;
  let end = min(first + ${PART_LOGITS / width}u, p.vocab);
  let row_at = p.logits_at + row * p.vocab;
  var so_far = vec2f(${LOWEST}, 0.0);
  for (var i = first + lane; i < end; i += ${THREADS}u) {
    let v = logits[row_at + i];
    let highest = ${width === 4 ? "max(max(v.x, v.y), max(v.z, v.w))" : "v"};
    let sum = total(exp(max(v - highest, Value(-200.0))));
    so_far = join(so_far, vec2f(highest, sum));
  }
  let all = join_all(so_far, lane);
  if (lane == 0u) {
    parts[p.parts_at + 2u * part] = all.x;
    parts[p.parts_at + 2u * part + 1u] = all.y;
  }
}`,
}));

const JOIN_PARTS = defineShader({
  name: "softmax-join-parts",
  buffers: { logprobs: "f32", log_sum_exp: "f32", logits: "f32", targets: "i32", parts: "f32" },
  params: { rows: "u32", vocab: "u32", row_parts: "u32", row_targets: "u32" },
  code: /* wgsl */ `
${JOIN}
${joinAllCode(64)}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(group);
  if (row >= p.rows) { return; }
  var so_far = vec2f(${LOWEST}, 0.0);
  for (var i = lane; i < p.row_parts; i += 64u) {
    let at = p.parts_at + 2u * (row * p.row_parts + i);
    so_far = join(so_far, vec2f(parts[at], parts[at + 1u]));
  }
  let all = join_all(so_far, lane);
  let log_sum = all.x + log(all.y);
  if (lane == 0u) { log_sum_exp[p.log_sum_exp_at + row] = log_sum; }
  for (var i = lane; i < p.row_targets; i += 64u) {
    let at = row * p.row_targets + i;
    let token = min(u32(targets[p.targets_at + at]), p.vocab - 1u);
    logprobs[p.logprobs_at + at] = logits[p.logits_at + row * p.vocab + token] - log_sum;
  }
}`,
});

/** Rows in parts, so that one row alone keeps the card busy too; then the parts of each row. */
export function logSoftmaxGather(context: GpuContext, operation: LogSoftmaxGather): void {
  const { logprobs, logSumExp, logits, targets, rows, vocabSize, targetsPerRow } = operation;
  const { queue } = context;
  const width = widthOf([logits], vocabSize);
  const rowParts = Math.ceil(vocabSize / PART_LOGITS);
  const mark = context.mark();
  const parts = context.scratch(2 * rows * rowParts);
  queue.run(SOFTMAX_PARTS(width), {
    buffers: { parts, logits },
    params: { count: rows * rowParts, vocab: vocabSize / width, row_parts: rowParts },
    workgroups: rows * rowParts,
  });
  queue.run(JOIN_PARTS, {
    buffers: { logprobs, log_sum_exp: logSumExp, logits, targets, parts },
    params: { rows, vocab: vocabSize, row_parts: rowParts, row_targets: targetsPerRow },
    workgroups: rows,
  });
  context.release(mark);
}

const LOGITS_GRADIENT = shaderVariants((width: Width) => ({
  name: `logits-gradient ${width}`,
  buffers: { logits: valueType(width), log_sum_exp: "f32", targets: "i32", coefficients: "f32" } as const,
  params: { count: "u32", vocab: "u32", row_parts: "u32", row_targets: "u32" } as const,
  code: /* wgsl */ `${valueCode(width)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let part = flat(group);
  if (part >= p.count) { return; }
  let row = part / p.row_parts;
  let first = (part - row * p.row_parts) * ${PART_LOGITS / width}u;
  let end = min(first + ${PART_LOGITS / width}u, p.vocab);
  let row_at = p.logits_at + row * p.vocab;
  let first_target = row * p.row_targets;
  var sum = 0.0;
  for (var j = first_target; j < first_target + p.row_targets; j++) {
    sum += coefficients[p.coefficients_at + j];
  }
  let log_sum = log_sum_exp[p.log_sum_exp_at + row];
  for (var i = first + lane; i < end; i += ${THREADS}u) {
    logits[row_at + i] = -sum * exp(max(logits[row_at + i] - log_sum, Value(-200.0)));
  }
  storageBarrier();
  // One thread alone: a token can be the target several times.
  if (lane > 0u) { return; }
  for (var j = first_target; j < first_target + p.row_targets; j++) {
    let token = u32(targets[p.targets_at + j]);
    let at = token / ${width}u;
    if (at >= first && at < end) {
      logits[row_at + at]${width === 4 ? "[token % 4u]" : ""} += coefficients[p.coefficients_at + j];
    }
  }
}`,
}));

/** Each workgroup a part of a row, with the targets that fall into it. */
export function logitsGradient({ queue }: GpuContext, operation: LogitsGradient): void {
  const { logits, logSumExp, targets, coefficients, rows, vocabSize, targetsPerRow } = operation;
  const width = widthOf([logits], vocabSize);
  const rowParts = Math.ceil(vocabSize / PART_LOGITS);
  queue.run(LOGITS_GRADIENT(width), {
    buffers: { logits, log_sum_exp: logSumExp, targets, coefficients },
    params: {
      count: rows * rowParts,
      vocab: vocabSize / width,
      row_parts: rowParts,
      row_targets: targetsPerRow,
    },
    workgroups: rows * rowParts,
  });
}
