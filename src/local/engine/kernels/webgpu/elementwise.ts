import type { GpuContext } from "./webgpu-kernels.js";

export function adamw(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("adamw is not written yet");
}

export function add(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("add is not written yet");
}

export function addScaled(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("addScaled is not written yet");
}

export function copy(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("copy is not written yet");
}

export function scale(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("scale is not written yet");
}

export function sumSquares(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("sumSquares is not written yet");
}

export function zero(_context: GpuContext, ..._rest: any[]): any {
  throw new Error("zero is not written yet");
}
