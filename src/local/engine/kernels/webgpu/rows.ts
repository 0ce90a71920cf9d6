import { type F32, type RmsNorm, type RmsNormBackward, sliceBuffer } from "../kernels.js";
import { addOverRows, teamSumCode, threadsFor } from "./reductions.js";
import { defineShader, shaderVariants } from "./shader.js";
import { valueCode, valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

interface RowVariant {
  width: Width;
  threads: number;
}

const rowVariant = (width: Width, cols: number): RowVariant => ({
  width,
  threads: threadsFor(cols / width / 4, 32, 256),
});

const RMS_NORM = shaderVariants(({ width, threads }: RowVariant) => ({
  name: `rms-norm ${width} ${threads}`,
  buffers: { out: valueType(width), rstd: "f32", x: valueType(width), weight: valueType(width) } as const,
  ints: ["rows", "cols"],
  floats: ["length", "eps"],
  code: /* wgsl */ `${valueCode(width)}
${teamSumCode(threads, threads)}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(group);
  if (row >= p.rows) { return; }
  let start = p.x_at + row * p.cols;
  var sum = 0.0;
  for (var i = lane; i < p.cols; i += ${threads}u) {
    let v = x[start + i];
    sum += total(v * v);
  }
  let scale = 1.0 / sqrt(team_sum(sum, lane) / p.length + p.eps);
  if (lane == 0u) { rstd[p.rstd_at + row] = scale; }
  for (var i = lane; i < p.cols; i += ${threads}u) {
    out[p.out_at + row * p.cols + i] = x[start + i] * scale * weight[p.weight_at + i];
  }
}`,
}));

/** One workgroup a row. */
export function rmsNorm({ queue }: GpuContext, { out, rstd, x, weight, rows, cols, eps }: RmsNorm): void {
  const width = widthOf([out, x, weight], cols);
  queue.run(RMS_NORM(rowVariant(width, cols)), {
    buffers: { out, rstd, x, weight },
    params: { rows, cols: cols / width, length: cols, eps },
    workgroups: rows,
  });
}

const RMS_NORM_BACKWARD = shaderVariants(({ width, threads }: RowVariant) => ({
  name: `rms-norm-backward ${width} ${threads}`,
  buffers: {
    dx: valueType(width),
    dout: valueType(width),
    x: valueType(width),
    rstd: "f32",
    weight: valueType(width),
  } as const,
  ints: ["rows", "cols"],
  floats: ["length"],
  code: /* wgsl */ `${valueCode(width)}
${teamSumCode(threads, threads)}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(group);
  if (row >= p.rows) { return; }
  let scale = rstd[p.rstd_at + row];
  let start = row * p.cols;
  var sum = 0.0;
  for (var i = lane; i < p.cols; i += ${threads}u) {
    sum += total(dout[p.dout_at + start + i] * weight[p.weight_at + i] * (x[p.x_at + start + i] * scale));
  }
  let mean = team_sum(sum, lane) / p.length;
  for (var i = lane; i < p.cols; i += ${threads}u) {
    let normalised = x[p.x_at + start + i] * scale;
    let dnormalised = dout[p.dout_at + start + i] * weight[p.weight_at + i];
    dx[p.dx_at + start + i] += scale * (dnormalised - normalised * mean);
  }
}`,
}));

const RMS_NORM_WEIGHT_GRADIENT = defineShader({
  name: "rms-norm-weight-gradient",
  buffers: { parts: "f32", dout: "f32", x: "f32", rstd: "f32" },
  ints: ["rows", "cols", "part_rows"],
  code: /* wgsl */ `
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) thread: vec3u) {
  let col = thread.x;
  if (col >= p.cols) { return; }
  let first = thread.y * p.part_rows;
  var sum = 0.0;
  for (var row = first; row < min(first + p.part_rows, p.rows); row++) {
    let i = row * p.cols + col;
    sum += dout[p.dout_at + i] * (x[p.x_at + i] * rstd[p.rstd_at + row]);
  }
  parts[p.parts_at + thread.y * p.cols + col] = sum;
}`,
});

/** One workgroup a row; the weight's gradient, if needed, column by column. */
export function rmsNormBackward(context: GpuContext, operation: RmsNormBackward): void {
  const { dx, dweight, dout, x, rstd, weight, rows, cols } = operation;
  const { queue } = context;
  const width = widthOf([dx, dout, x, weight], cols);
  queue.run(RMS_NORM_BACKWARD(rowVariant(width, cols)), {
    buffers: { dx, dout, x, rstd, weight },
    params: { rows, cols: cols / width, length: cols },
    workgroups: rows,
  });
  if (!dweight) return;
  addOverRows(context, sliceBuffer(dweight, 0, cols), rows, (parts, partRows, count) =>
    queue.run(RMS_NORM_WEIGHT_GRADIENT, {
      buffers: { parts, dout, x, rstd },
      params: { rows, cols, part_rows: partRows },
      workgroups: [Math.ceil(cols / 64), count],
    }),
  );
}

/** Exact far out on both sides: no exponential of something large. */
export const SIGMOID = /* wgsl */ `
fn sigmoid(v: Value) -> Value {
  let e = exp(-abs(v));
  return select(Value(1.0), e, v < Value()) / (1.0 + e);
}`;

const SWIGLU = shaderVariants((width: Width) => ({
  name: `swiglu ${width}`,
  buffers: { out: valueType(width), gate_up: valueType(width) },
  ints: ["count", "cols"],
  code: /* wgsl */ `${valueCode(width)}
${SIGMOID}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 256u + lane;
  if (i >= p.count) { return; }
  let at = p.gate_up_at + i + (i / p.cols) * p.cols;
  let gate = gate_up[at];
  out[p.out_at + i] = gate * sigmoid(gate) * gate_up[at + p.cols];
}`,
}));

/** One thread for each value of `out`, or for four. */
export function swiglu({ queue }: GpuContext, out: F32, gateUp: F32, rows: number, cols: number): void {
  const width = widthOf([out, gateUp], cols);
  const count = (rows * cols) / width;
  queue.run(SWIGLU(width), {
    buffers: { out, gate_up: gateUp },
    params: { count, cols: cols / width },
    workgroups: Math.ceil(count / 256),
  });
}

const SWIGLU_BACKWARD = shaderVariants((width: Width) => ({
  name: `swiglu-backward ${width}`,
  buffers: { dgate_up: valueType(width), dout: valueType(width), gate_up: valueType(width) },
  ints: ["count", "cols"],
  code: /* wgsl */ `${valueCode(width)}
${SIGMOID}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 256u + lane;
  if (i >= p.count) { return; }
  let at = i + (i / p.cols) * p.cols;
  let gate = gate_up[p.gate_up_at + at];
  let up = gate_up[p.gate_up_at + at + p.cols];
  let d = dout[p.dout_at + i];
  let s = sigmoid(gate);
  dgate_up[p.dgate_up_at + at + p.cols] = d * (gate * s);
  dgate_up[p.dgate_up_at + at] = d * up * (s * (1.0 + gate * (1.0 - s)));
}`,
}));

/** One thread for each value of `dout`, or for four, which writes both halves of the gradient. */
export function swigluBackward(
  { queue }: GpuContext,
  dgateUp: F32,
  dout: F32,
  gateUp: F32,
  rows: number,
  cols: number,
): void {
  const width = widthOf([dgateUp, dout, gateUp], cols);
  const count = (rows * cols) / width;
  queue.run(SWIGLU_BACKWARD(width), {
    buffers: { dgate_up: dgateUp, dout, gate_up: gateUp },
    params: { count, cols: cols / width },
    workgroups: Math.ceil(count / 256),
  });
}
