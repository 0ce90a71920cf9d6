/** The engine's numerical operations: one interface, a plain JavaScript reference, and WebAssembly SIMD with threads. */
export * from "./kernels.js";
export { createReferenceKernels } from "./reference.js";
export { createWasmKernels, type WasmKernelOptions } from "./wasm-kernels.js";
