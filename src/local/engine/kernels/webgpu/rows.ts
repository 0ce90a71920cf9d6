import {
  type F32,
  type I32,
  type Matrix,
  type RmsNorm,
  type RmsNormBackward,
  type Rows,
  slice,
} from "../kernels.js";
import type { GpuFrozen } from "./frozen.js";
import { addOverRows, teamSumCode, threadsFor } from "./reductions.js";
import { defineShader, type ElementType, shaderVariants } from "./shader.js";
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
  params: { rows: "u32", cols: "u32", length: "f32", eps: "f32" } as const,
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
  params: { rows: "u32", cols: "u32", length: "f32" } as const,
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
  params: { rows: "u32", cols: "u32", part_rows: "u32" },
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

/** One workgroup a row; the weight's gradient, where it is wanted, column by column. */
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
  addOverRows(context, slice(dweight, 0, cols), rows, (parts, partRows, count) =>
    queue.run(RMS_NORM_WEIGHT_GRADIENT, {
      buffers: { parts, dout, x, rstd },
      params: { rows, cols, part_rows: partRows },
      workgroups: [Math.ceil(cols / 64), count],
    }),
  );
}

/** Exact far out on both sides: no exponential of something large. */
const SIGMOID = /* wgsl */ `
fn sigmoid(v: Value) -> Value {
  let e = exp(-abs(v));
  return select(Value(1.0), e, v < Value()) / (1.0 + e);
}`;

const SWIGLU = shaderVariants((width: Width) => ({
  name: `swiglu ${width}`,
  buffers: { out: valueType(width), gate_up: valueType(width) },
  params: { count: "u32", cols: "u32" } as const,
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
  params: { count: "u32", cols: "u32" } as const,
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

interface TableVariant {
  /** "values" are float32 that can be written elsewhere. */
  stored: "values" | "F32" | "BF16" | "F16";
  width: Width;
}

/** What an element of a table is bound as, and how `Value` number i of the table is read. */
function tableCode({ stored, width }: TableVariant): {
  type: ElementType | `read ${ElementType}`;
  read: string;
} {
  if (stored === "values") return { type: valueType(width), read: "return table[p.table_at + i];" };
  if (stored === "F32") return { type: `read ${valueType(width)}`, read: "return table[p.table_at + i];" };
  const halves = (word: string) =>
    stored === "F16"
      ? `unpack2x16float(${word})`
      : `vec2f(bitcast<f32>(${word} << 16u), bitcast<f32>(${word} & 0xffff0000u))`;
  if (width === 1) {
    return {
      type: "read u32",
      read: `let word = table[p.table_at + i / 2u]; return ${halves("word")}[i % 2u];`,
    };
  }
  return {
    type: "read vec2<u32>",
    read: `let words = table[p.table_at + i]; return vec4f(${halves("words.x")}, ${halves("words.y")});`,
  };
}

const GATHER = shaderVariants((variant: TableVariant) => {
  const { type, read } = tableCode(variant);
  return {
    name: `gather-rows ${variant.stored} ${variant.width}`,
    buffers: { out: valueType(variant.width), table: type, indices: "i32" } as const,
    params: { count: "u32", cols: "u32", stride: "u32", first_row: "u32", table_rows: "u32" } as const,
    code: /* wgsl */ `${valueCode(variant.width)}
fn stored(i: u32) -> Value { ${read} }

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 256u + lane;
  if (i >= p.count) { return; }
  let row = i / p.cols;
  let index = u32(indices[p.indices_at + row]) - p.first_row;
  if (index < p.table_rows) { out[p.out_at + i] = stored(index * p.stride + i - row * p.cols); }
}`,
  };
});

/** A table that cannot be bound as a whole is bound a part at a time, and rows from other parts are left to their turn. */
export function gatherRows(
  { queue, gpu }: GpuContext,
  out: F32,
  table: Matrix,
  indices: I32,
  rows: number,
  cols: number,
): void {
  const isFrozen = table.kind === "frozen";
  const { dtype: stored, stride } = isFrozen
    ? (table as GpuFrozen)
    : { dtype: "values" as const, stride: cols };
  const width = widthOf(isFrozen ? [out] : [out, table], cols);
  const count = (rows * cols) / width;
  const rowBytes = stride * (stored === "BF16" || stored === "F16" ? 2 : 4);
  const tableRows = isFrozen ? table.outputs : Math.floor(table.length / cols);
  const most = Math.floor((gpu.device.limits.maxStorageBufferBindingSize - 256) / rowBytes);
  for (let first = 0; first < tableRows; first += most) {
    const partRows = Math.min(most, tableRows - first);
    const part: F32 = {
      ...table,
      kind: "f32",
      offset: table.offset + first * rowBytes,
      length: (partRows * rowBytes) / 4,
    };
    queue.run(GATHER({ stored, width }), {
      buffers: { out, table: part, indices },
      params: { count, cols: cols / width, stride: stride / width, first_row: first, table_rows: partRows },
      workgroups: Math.ceil(count / 256),
    });
  }
}

const SCATTER = shaderVariants((width: Width) => ({
  name: `scatter-rows ${width}`,
  buffers: { table: valueType(width), x: valueType(width), indices: "i32" } as const,
  params: { count: "u32", cols: "u32", stride: "u32", table_rows: "u32" } as const,
  code: /* wgsl */ `${valueCode(width)}
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 256u + lane;
  if (i >= p.count) { return; }
  let row = i / p.cols;
  let col = i - row * p.cols;
  let index = u32(indices[p.indices_at + row]);
  if (index < p.table_rows) { table[p.table_at + index * p.cols + col] = x[p.x_at + row * p.stride + col]; }
}`,
}));

export function scatterRows(
  { queue }: GpuContext,
  table: F32,
  { data: x, stride }: Rows,
  indices: I32,
  rows: number,
  cols: number,
): void {
  const width = widthOf([table, x], cols, stride);
  const count = (rows * cols) / width;
  queue.run(SCATTER(width), {
    buffers: { table, x, indices },
    params: {
      count,
      cols: cols / width,
      stride: stride / width,
      table_rows: Math.floor(table.length / cols),
    },
    workgroups: Math.ceil(count / 256),
  });
}

/** Each adds the rows for its own share of the table, so that equal indices meet in one thread, in order. */
const SCATTER_ADD_SHARES = 64;

const SCATTER_ADD = defineShader({
  name: "scatter-add-rows",
  buffers: { table: "f32", x: "f32", indices: "i32" },
  params: { rows: "u32", cols: "u32", table_rows: "u32" },
  code: /* wgsl */ `
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) thread: vec3u) {
  let col = thread.x;
  if (col >= p.cols) { return; }
  for (var row = 0u; row < p.rows; row++) {
    let index = u32(indices[p.indices_at + row]);
    if (index % ${SCATTER_ADD_SHARES}u == thread.y && index < p.table_rows) {
      table[p.table_at + index * p.cols + col] += x[p.x_at + row * p.cols + col];
    }
  }
}`,
});

export function scatterAddRows(
  { queue }: GpuContext,
  table: F32,
  x: F32,
  indices: I32,
  rows: number,
  cols: number,
): void {
  queue.run(SCATTER_ADD, {
    buffers: { table, x, indices },
    params: { rows, cols, table_rows: Math.floor(table.length / cols) },
    workgroups: [Math.ceil(cols / 64), SCATTER_ADD_SHARES],
  });
}
