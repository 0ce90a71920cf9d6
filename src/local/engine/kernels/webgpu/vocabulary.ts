import type { GpuContext } from "./webgpu-kernels.js";

export function logitsGradient(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("logitsGradient is not written yet");
}

export function logSoftmaxGather(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("logSoftmaxGather is not written yet");
}

export function tokenGradients(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("tokenGradients is not written yet");
}
