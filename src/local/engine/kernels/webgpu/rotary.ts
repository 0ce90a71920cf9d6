import type { GpuContext } from "./webgpu-kernels.js";

export function normRope(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("normRope is not written yet");
}

export function normRopeBackward(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("normRopeBackward is not written yet");
}
