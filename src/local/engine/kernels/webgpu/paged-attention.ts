import type { GpuContext } from "./webgpu-kernels.js";

export function attentionPaged(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("attentionPaged is not written yet");
}
