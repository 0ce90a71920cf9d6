// `npm run generate:kernels`: compiles the AssemblyScript kernels to the committed wasm files, or into the folder given as
// argument: those of the engine, the product with which adapters are merged, and the fit of GGUF's K-quants.
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import asc from "assemblyscript/asc";

const folder = fileURLToPath(new URL("../src/local/engine/kernels/", import.meta.url));
const checkpointsFolder = fileURLToPath(new URL("../src/checkpoints/", import.meta.url));
const variants = { plain: "simd,threads,bulk-memory", relaxed: "simd,threads,bulk-memory,relaxed-simd" };

/** Writes kernels-plain.wasm and kernels-relaxed.wasm into `outputFolder`. */
export async function buildKernels(outputFolder = folder) {
  mkdirSync(outputFolder, { recursive: true });
  for (const [name, features] of Object.entries(variants)) {
    const { error, stderr } = await asc.main([
      resolve(folder, "wasm/index.ts"),
      ...["--outFile", resolve(outputFolder, `kernels-${name}.wasm`)],
      ...["--runtime", "stub", "--noAssert", "--optimizeLevel", "3", "--shrinkLevel", "0"],
      ...["--importMemory", "--sharedMemory", "--initialMemory", "2", "--maximumMemory", "65536"],
      ...["--enable", features],
    ]);
    if (error) throw new Error(`asc failed for the ${name} kernels: ${error.message}\n${stderr.toString()}`);
  }
}

/** Writes the compiled code of `checkpoints/` into `outputFolder`, or beside what uses it. */
export async function buildCheckpointKernels(outputFolder) {
  for (const [name, place] of Object.entries({ "low-rank": ".", "k-quants": "gguf" })) {
    const output = outputFolder ?? resolve(checkpointsFolder, place);
    mkdirSync(output, { recursive: true });
    const { error, stderr } = await asc.main([
      resolve(checkpointsFolder, `wasm/${name}.ts`),
      ...["--outFile", resolve(output, `${name}.wasm`)],
      ...["--runtime", "stub", "--noAssert", "--optimizeLevel", "3", "--shrinkLevel", "0"],
      ...["--enable", "simd,bulk-memory"],
    ]);
    if (error) throw new Error(`asc failed for ${name}: ${error.message}\n${stderr.toString()}`);
  }
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const output = process.argv[2] === undefined ? undefined : resolve(process.argv[2]);
  await buildKernels(output);
  await buildCheckpointKernels(output);
}
