import type { RmsNorm } from "../kernels.js";
import { defineShader } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

const RMS_NORM = defineShader({
  name: "rms-norm",
  buffers: { out: "f32", rstd: "f32", x: "f32", weight: "f32" },
  params: { rows: "u32", cols: "u32", eps: "f32" },
  code: /* wgsl */ `
var<workgroup> partial: array<f32, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(group);
  if (row >= p.rows) { return; }
  let start = p.x_at + row * p.cols;
  var sum = 0.0;
  for (var i = lane; i < p.cols; i += 128u) {
    let value = x[start + i];
    sum += value * value;
  }
  partial[lane] = sum;
  for (var width = 64u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { partial[lane] += partial[lane + width]; }
  }
  workgroupBarrier();
  let scale = 1.0 / sqrt(partial[0] / f32(p.cols) + p.eps);
  if (lane == 0u) { rstd[p.rstd_at + row] = scale; }
  for (var i = lane; i < p.cols; i += 128u) {
    out[p.out_at + row * p.cols + i] = x[start + i] * scale * weight[p.weight_at + i];
  }
}`,
});

/** One workgroup a row. */
export function rmsNorm({ queue }: GpuContext, { out, rstd, x, weight, rows, cols, eps }: RmsNorm): void {
  queue.run(RMS_NORM, { buffers: { out, rstd, x, weight }, params: { rows, cols, eps }, workgroups: rows });
}

export function gatherRows(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("gatherRows is not written yet");
}

export function rmsNormBackward(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("rmsNormBackward is not written yet");
}

export function scatterAddRows(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("scatterAddRows is not written yet");
}

export function scatterRows(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("scatterRows is not written yet");
}

export function swiglu(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("swiglu is not written yet");
}

export function swigluBackward(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("swigluBackward is not written yet");
}
