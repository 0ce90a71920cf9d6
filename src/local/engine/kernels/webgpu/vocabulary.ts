import type { LogitsGradient, LogSoftmaxGather } from "../kernels.js";
import { reduceCode, threadsFor } from "./reductions.js";
import { shaderVariants } from "./shader.js";
import { valueCode, valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Logits that one workgroup reads. Rows are cut by their length alone: a row's bits do not depend on how many there are. */
const PART_LOGITS = 4096;
const JOIN_THREADS = 64;

interface PartVariant {
  width: Width;
  threads: number;
}

const partVariant = (width: Width, vocabSize: number): PartVariant => ({
  width,
  threads: threadsFor(Math.min(vocabSize, PART_LOGITS) / width / 4, 32, 256),
});

/** The highest logit of none, and the sum of exponentials below it; WGSL has no infinity. */
const NONE = "vec2f(-3.4e38, 0.0)";

/** `join`: the highest of two sets of logits with the sum of exponentials below it. What is far below would overflow. */
const JOIN = /* wgsl */ `
fn exp_below(difference: f32) -> f32 { return exp(max(difference, -200.0)); }
fn join(a: vec2f, b: vec2f) -> vec2f {
  let highest = max(a.x, b.x);
  return vec2f(highest, a.y * exp_below(a.x - highest) + b.y * exp_below(b.x - highest));
}`;

/** Looks at the bits, because comparisons, `max` and `log` may lose values that are not finite. */
const IS_FINITE = /* wgsl */ `
fn is_finite(value: f32) -> bool { return (bitcast<u32>(value) & 0x7fffffffu) < 0x7f800000u; }`;

const joinAllCode = (threads: number, team: number) =>
  reduceCode({ name: "join_all", type: "vec2f", threads, team, join: "join(a, b)" });

/** Which logits of which row a workgroup works on: `first` to `end` behind `row_at`. */
const partCode = (width: Width) => /* wgsl */ `let part = flat(group);
  if (part >= p.count) { return; }
  let row = part / p.row_parts;
  let first = (part - row * p.row_parts) * ${PART_LOGITS / width}u;
  let end = min(first + ${PART_LOGITS / width}u, p.vocab);
  let row_at = p.logits_at + row * p.vocab;`;

const SOFTMAX_PARTS = shaderVariants(({ width, threads }: PartVariant) => ({
  name: `softmax-parts ${width} ${threads}`,
  buffers: { parts: "f32", logits: valueType(width) } as const,
  ints: ["count", "vocab", "row_parts"],
  code: /* wgsl */ `${valueCode(width)}
${JOIN}
${IS_FINITE}
${joinAllCode(threads, threads)}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${partCode(width)}
  var so_far = ${NONE};
  for (var i = first + lane; i < end; i += ${threads}u) {
    let v = logits[row_at + i];
    let highest = ${width === 4 ? "max(max(v.x, v.y), max(v.z, v.w))" : "v"};
    let quarters = total(0.25 * v);
    let sum = select(quarters, total(exp(max(v - highest, Value(-200.0)))), is_finite(quarters));
    so_far = join(so_far, vec2f(highest, sum));
  }
  let all = join_all(so_far, lane);
  if (lane == 0u) {
    parts[p.parts_at + 2u * part] = all.x;
    parts[p.parts_at + 2u * part + 1u] = all.y;
  }
}`,
}));

const JOIN_PARTS = shaderVariants((team: number) => ({
  name: `softmax-join-parts ${team}`,
  buffers: { logprobs: "f32", log_sum_exp: "f32", logits: "f32", targets: "i32", parts: "f32" } as const,
  ints: ["rows", "vocab", "row_parts", "row_targets"],
  code: /* wgsl */ `
${JOIN}
${IS_FINITE}
${joinAllCode(JOIN_THREADS, team)}

@compute @workgroup_size(${JOIN_THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(group) * ${JOIN_THREADS / team}u + lane / ${team}u;
  let member = lane % ${team}u;
  var so_far = ${NONE};
  for (var i = member; row < p.rows && i < p.row_parts; i += ${team}u) {
    let at = p.parts_at + 2u * (row * p.row_parts + i);
    so_far = join(so_far, vec2f(parts[at], parts[at + 1u]));
  }
  let all = join_all(so_far, lane);
  if (row >= p.rows) { return; }
  let log_sum = select(all.y, all.x + log(all.y), is_finite(all.y));
  if (member == 0u) { log_sum_exp[p.log_sum_exp_at + row] = log_sum; }
  for (var i = member; i < p.row_targets; i += ${team}u) {
    let at = row * p.row_targets + i;
    let token = min(u32(targets[p.targets_at + at]), p.vocab - 1u);
    logprobs[p.logprobs_at + at] = logits[p.logits_at + row * p.vocab + token] - log_sum;
  }
}`,
}));

/** Rows in parts, so that one row alone keeps the GPU busy too; then the parts of each row. */
export function logSoftmaxGather(context: GpuContext, operation: LogSoftmaxGather): void {
  const { logprobs, logSumExp, logits, targets, rows, vocabSize, targetsPerRow } = operation;
  const { queue } = context;
  const width = widthOf([logits], vocabSize);
  const rowParts = Math.ceil(vocabSize / PART_LOGITS);
  const mark = context.mark();
  const parts = context.scratch(2 * rows * rowParts);
  queue.run(SOFTMAX_PARTS(partVariant(width, vocabSize)), {
    buffers: { parts, logits },
    params: { count: rows * rowParts, vocab: vocabSize / width, row_parts: rowParts },
    workgroups: rows * rowParts,
  });
  const team = threadsFor(rowParts, 1, JOIN_THREADS);
  queue.run(JOIN_PARTS(team), {
    buffers: { logprobs, log_sum_exp: logSumExp, logits, targets, parts },
    params: { rows, vocab: vocabSize, row_parts: rowParts, row_targets: targetsPerRow },
    workgroups: Math.ceil((rows * team) / JOIN_THREADS),
  });
  context.release(mark);
}

const LOGITS_GRADIENT = shaderVariants(({ width, threads }: PartVariant) => ({
  name: `logits-gradient ${width} ${threads}`,
  buffers: { logits: valueType(width), log_sum_exp: "f32", targets: "i32", coefficients: "f32" } as const,
  ints: ["count", "vocab", "row_parts", "row_targets"],
  code: /* wgsl */ `${valueCode(width)}
${IS_FINITE}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${partCode(width)}
  let first_target = row * p.row_targets;
  var sum = 0.0;
  for (var j = first_target; j < first_target + p.row_targets; j++) {
    sum += coefficients[p.coefficients_at + j];
  }
  let log_sum = log_sum_exp[p.log_sum_exp_at + row];
  let factor = select(log_sum, -sum, is_finite(log_sum));
  for (var i = first + lane; i < end; i += ${threads}u) {
    logits[row_at + i] = factor * exp(max(logits[row_at + i] - log_sum, Value(-200.0)));
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
  queue.run(LOGITS_GRADIENT(partVariant(width, vocabSize)), {
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
