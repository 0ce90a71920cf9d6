// One merge, or one reading of a whole merged model, in a process of its own: merge.mjs merge BASE ADAPTER OUTPUT, or
// merge.mjs read BASE ADAPTER. Prints seconds and the highest resident memory as JSON.
import { performance } from "node:perf_hooks";
import { mergeAdapter } from "../../dist/checkpoints/index.js";
import { MergedWeights } from "../../dist/checkpoints/merged-weights.node.js";

const BLOCK_BYTES = 8 << 20;
const [, , what, base, adapter, output] = process.argv;
const begin = performance.now();
let bytes = 0;
if (what === "merge") await mergeAdapter(base, adapter, output);
else {
  const weights = await MergedWeights.open(base, adapter);
  for (const tensor of weights.tensors) {
    const rows = Math.max(1, Math.floor(BLOCK_BYTES / (2 * tensor.rowLength)));
    for (let row = 0; row < tensor.rowCount; row += rows) {
      bytes += tensor.readBytes(row, Math.min(rows, tensor.rowCount - row)).length;
    }
  }
  weights.close();
}
console.log(
  JSON.stringify({
    seconds: (performance.now() - begin) / 1000,
    megabytes: process.resourceUsage().maxRSS / 1024,
    bytes,
  }),
);
