import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { createReferenceKernels } from "./reference-kernels.js";

export const kernelChoices: { name: string; create: () => Promise<Kernels> }[] = [
  { name: "reference", create: async () => createReferenceKernels() },
  { name: "wasm", create: async () => createWasmKernels({ threads: 2 }) },
];
