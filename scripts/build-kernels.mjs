// `npm run generate:kernels`: compiles the AssemblyScript kernels to the two committed wasm files, or into the folder
// given as argument.
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import asc from "assemblyscript/asc";

const folder = fileURLToPath(new URL("../src/local/engine/kernels/", import.meta.url));
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

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await buildKernels(process.argv[2] === undefined ? folder : resolve(process.argv[2]));
}
