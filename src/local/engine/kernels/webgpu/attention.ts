import type { GpuContext } from "./webgpu-kernels.js";

export function attention(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("attention is not written yet");
}

export function attentionBackward(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("attentionBackward is not written yet");
}
