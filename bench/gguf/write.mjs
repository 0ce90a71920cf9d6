// One GGUF file in a process of its own: write.mjs BASE ADAPTER OUTPUT TYPE. Prints seconds and the highest resident memory.
import { performance } from "node:perf_hooks";
import { exportModel } from "../../dist/checkpoints/index.js";

const [, , baseModel, adapter, output, type] = process.argv;
const begin = performance.now();
await exportModel({ to: "gguf", baseModel, adapter, output, type });
const seconds = (performance.now() - begin) / 1000;
console.log(JSON.stringify({ seconds, megabytes: process.resourceUsage().maxRSS / 1024 }));
