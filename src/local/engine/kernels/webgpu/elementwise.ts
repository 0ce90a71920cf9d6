import { type AdamWStep, adamwScalars, type F32, sliceBuffer } from "../kernels.js";
import { onDevice } from "./device-memory.js";
import { teamSumCode } from "./reductions.js";
import { shaderVariants, typed } from "./shader.js";
import { valueCode, valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

const THREADS = 256;
/** Values, or fours of values, that a thread handles. */
const PER_THREAD = 4;
const PER_GROUP = THREADS * PER_THREAD;

interface Piece {
  width: Width;
  start: number;
  length: number;
  workgroups: number;
}

/** How whole buffers are passed over: four values at a time as far as that goes, and no more at once than can be bound. */
function* pieces({ gpu }: GpuContext, buffers: readonly F32[], length: number): Generator<Piece> {
  const vectors = widthOf(buffers) === 4 ? length - (length % 4) : 0;
  const most = 4 * Math.floor((gpu.device.limits.maxStorageBufferBindingSize - 256) / 16);
  for (let start = 0; start < length; ) {
    const width = start < vectors ? 4 : 1;
    const count = Math.min(most, (width === 4 ? vectors : length) - start);
    yield { width, start, length: count, workgroups: Math.ceil(count / (width * PER_GROUP)) };
    start += count;
  }
}

/** Something that happens to value `i` of all buffers alike. */
function perValue<Buffer extends string, Param extends string = never>(
  name: string,
  buffers: readonly Buffer[],
  floats: readonly Param[],
  code: string,
) {
  const shaders = shaderVariants((width: Width) => ({
    name: `${name} ${width}`,
    buffers: typed(valueType(width), ...buffers),
    ints: ["count" as Param | "count"],
    floats,
    code: /* wgsl */ `${valueCode(width)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  var i = flat(group) * ${PER_GROUP}u + lane;
  for (var turn = 0u; turn < ${PER_THREAD}u && i < p.count; turn++) {
    ${code}
    i += ${THREADS}u;
  }
}`,
  }));
  return (
    context: GpuContext,
    length: number,
    handles: Record<Buffer, F32>,
    values: Record<Param, number>,
  ) => {
    for (const piece of pieces(context, Object.values(handles), length)) {
      const { width, start, workgroups } = piece;
      const parts = buffers.map(
        (buffer) => [buffer, sliceBuffer(handles[buffer], start, piece.length)] as const,
      );
      context.queue.run(shaders(width), {
        buffers: Object.fromEntries(parts) as Record<Buffer, F32>,
        params: { ...values, count: piece.length / width } as Record<Param | "count", number>,
        workgroups,
      });
    }
  };
}

const runZero = perValue("zero", ["x"], [], "x[p.x_at + i] = Value();");
const runCopy = perValue("copy", ["out", "x"], [], "out[p.out_at + i] = x[p.x_at + i];");
const runAdd = perValue("add", ["out", "a", "b"], [], "out[p.out_at + i] = a[p.a_at + i] + b[p.b_at + i];");
const runAddScaled = perValue(
  "add-scaled",
  ["y", "x"],
  ["factor"],
  "y[p.y_at + i] += p.factor * x[p.x_at + i];",
);
const runScale = perValue("scale", ["x"], ["factor"], "x[p.x_at + i] *= p.factor;");
const runAdamw = perValue(
  "adamw",
  ["weights", "gradient", "first", "second"],
  ["decay", "oneMinusBeta1", "beta2", "oneMinusBeta2", "stepSize", "rootCorrection2", "eps", "gradScale"],
  // Squares below 1e-38 are zero here: without the bound, tiny gradients would make steps without one where eps is tiny too.
  /* wgsl */ `
    let g = gradient[p.gradient_at + i] * p.gradScale;
    let old_m = first[p.first_at + i];
    let m = old_m + (g - old_m) * p.oneMinusBeta1;
    let v = second[p.second_at + i] * p.beta2 + g * g * p.oneMinusBeta2;
    let divisor = max(sqrt(v) / p.rootCorrection2 + p.eps, Value(1e-19));
    first[p.first_at + i] = m;
    second[p.second_at + i] = v;
    weights[p.weights_at + i] = weights[p.weights_at + i] * p.decay - p.stepSize * (m / divisor);`,
);

/** Where windows on two handles would overlap, one run cannot have both. */
function shareWindow(a: F32, b: F32): boolean {
  const [first, second] = [onDevice(a), onDevice(b)];
  if (first.block !== second.block) return false;
  const start = (offset: number) => offset - (offset % 256);
  return (
    start(first.offset) < second.offset + 4 * second.length &&
    start(second.offset) < first.offset + 4 * first.length
  );
}

const isSame = (a: F32, b: F32) => a.offset === b.offset && onDevice(a).block === onDevice(b).block;

/** Uses a shader: clearing a buffer would end the pass in which runs are recorded. */
export function zero(context: GpuContext, x: F32): void {
  runZero(context, x.length, { x }, {});
}

/** Neighbours in one block that are not apart enough go by way of scratch. */
export function copy(context: GpuContext, out: F32, x: F32): void {
  if (!shareWindow(out, x)) {
    runCopy(context, x.length, { out, x }, {});
    return;
  }
  const mark = context.mark();
  const between = context.scratch(x.length);
  runCopy(context, x.length, { out: between, x }, {});
  runCopy(context, x.length, { out, x: between }, {});
  context.release(mark);
}

/** In place it is another operation: a buffer can be bound once only. */
export function addBuffers(context: GpuContext, out: F32, a: F32, b: F32): void {
  if (isSame(a, b)) {
    if (!isSame(out, a)) copy(context, out, a);
    scale(context, out, 2);
  } else if (isSame(out, a)) addScaled(context, out, b, 1);
  else if (isSame(out, b)) addScaled(context, out, a, 1);
  else runAdd(context, out.length, { out, a, b }, {});
}

/** One pass over both. */
export function addScaled(context: GpuContext, y: F32, x: F32, factor: number): void {
  runAddScaled(context, y.length, { y, x }, { factor });
}

/** One pass, in place. */
export function scale(context: GpuContext, x: F32, factor: number): void {
  runScale(context, x.length, { x }, { factor });
}

/** One pass over weights, gradient and both moments. */
export function adamw(
  context: GpuContext,
  weights: F32,
  gradient: F32,
  first: F32,
  second: F32,
  step: AdamWStep,
): void {
  runAdamw(context, weights.length, { weights, gradient, first, second }, adamwScalars(step));
}

const SUM_SQUARES = shaderVariants((width: Width) => ({
  name: `sum-squares ${width}`,
  buffers: { sums: "f32", x: valueType(width) } as const,
  ints: ["count", "groups"],
  code: /* wgsl */ `${valueCode(width)}
${teamSumCode(THREADS, THREADS)}

fn square(i: u32) -> Value {
  if (i >= p.count) { return Value(); }
  let v = x[p.x_at + i];
  return v * v;
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let number = flat(group);
  if (number >= p.groups) { return; }
  let i = number * ${PER_GROUP}u + lane;
  let sum = (square(i) + square(i + ${THREADS}u)) + (square(i + ${2 * THREADS}u) + square(i + ${3 * THREADS}u));
  let all = team_sum(total(sum), lane);
  if (lane == 0u) { sums[p.sums_at + number] = all; }
}`,
}));

/** Sums of a few thousand values, each of a dozen additions deep, on the GPU; the rest in float64 here. */
export async function sumSquares(context: GpuContext, x: F32): Promise<number> {
  const parts = [...pieces(context, [x], x.length)];
  const mark = context.mark();
  const sums = context.scratch(parts.reduce((sum, { workgroups }) => sum + workgroups, 0));
  let at = 0;
  for (const { width, start, length, workgroups } of parts) {
    context.queue.run(SUM_SQUARES(width), {
      buffers: { sums: sliceBuffer(sums, at, workgroups), x: sliceBuffer(x, start, length) },
      params: { count: length / width, groups: workgroups },
      workgroups,
    });
    at += workgroups;
  }
  const download = context.download(sums);
  context.release(mark);
  let sum = 0;
  for (const part of await download) sum += part;
  return sum;
}
