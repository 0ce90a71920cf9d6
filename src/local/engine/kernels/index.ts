/** The engine's numerical operations: one interface, with WebAssembly SIMD and WebGPU behind it (reference.ts is what tests hold them against). */
export * from "./kernels.js";
export { WasmKernels } from "./wasm-kernels.js";
