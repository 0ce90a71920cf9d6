/** The engine's numerical operations: one interface, with WebAssembly SIMD and WebGPU behind it (tests compare both with plain loops). */
export * from "./kernels.js";
export { WasmKernels } from "./wasm-kernels.js";
