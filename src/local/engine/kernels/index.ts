/** The engine's numerical operations: one interface, and WebAssembly SIMD with threads behind it (reference.ts is what tests hold it against). */
export * from "./kernels.js";
export { createWasmKernels, type WasmKernelOptions } from "./wasm-kernels.js";
