// One merge, or one reading of a whole merged model, in a process of its own: merge.mjs merge BASE ADAPTER OUTPUT, or
// merge.mjs read BASE ADAPTER. Prints seconds, those of all cores in the whole process, and the highest resident memory as
// JSON.
import { performance } from "node:perf_hooks";
import { mergeAdapter } from "../../dist/checkpoints/index.js";
import { MergedWeights } from "../../dist/checkpoints/merged-weights.node.js";

const BLOCK_BYTES = 8 << 20;
const [, , what, base, adapter, output] = process.argv;
const begin = performance.now();
if (what === "merge") await mergeAdapter(base, adapter, output);
else {
  const weights = await MergedWeights.open(base, adapter);
  const block = new Uint8Array(BLOCK_BYTES);
  for (const tensor of weights.tensors) {
    const rows = Math.max(1, Math.floor(BLOCK_BYTES / (2 * tensor.rowLength)));
    for (let row = 0; row < tensor.rowCount; row += rows) {
      tensor.readBytes(row, Math.min(rows, tensor.rowCount - row), block);
    }
  }
  weights.close();
}
const seconds = (performance.now() - begin) / 1000;
const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
console.log(
  JSON.stringify({
    seconds,
    cpuSeconds: (userCPUTime + systemCPUTime) / 1e6,
    megabytes: maxRSS / 1024,
  }),
);
