import { createWasmKernels } from "../../src/local/engine/kernels/index.js";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import { createReferenceKernels } from "../../src/local/engine/kernels/reference.js";

export const kernelChoices: { name: string; create: () => Promise<Kernels> }[] = [
  { name: "reference", create: async () => createReferenceKernels() },
  { name: "wasm", create: async () => createWasmKernels({ threads: 2 }) },
];
