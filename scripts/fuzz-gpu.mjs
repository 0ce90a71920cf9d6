// `npm run fuzz:gpu -- --seeds 500 [--from 1] [--precision exact|fast] [--report]`: random models, adapters and batches
// on the GPU's kernels against the CPU's engine: losses, logprobs, gradients, optimizer steps, then samples. `--seed N`
// repeats one case and shows it. It ends with one JSON line. Needs a build; runs on the machine's card, or on SwiftShader
// where VK_DRIVER_FILES names it.
import { parseArgs } from "node:util";
import { EngineCore } from "../dist/local/engine/engine-core.js";
import { createWasmKernels } from "../dist/local/engine/kernels/wasm-kernels.node.js";
import { openMachineGpu } from "../dist/local/engine/kernels/webgpu/dawn.node.js";
import { createWebGpuKernels } from "../dist/local/engine/kernels/webgpu/webgpu-kernels.js";
import { fuzzCase } from "./fuzz-gpu/case.mjs";
import { ALLOWED, compareCase } from "./fuzz-gpu/compare.mjs";
import { writeProofSection } from "./proof-section.mjs";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "50" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    precision: { type: "string", default: "exact" },
    report: { type: "boolean", default: false },
  },
});
if (!(values.precision in ALLOWED)) throw new Error("--precision is exact or fast");
const first = Number(values.seed ?? values.from);
const count = values.seed === undefined ? Number(values.seeds) : 1;
if (!Number.isInteger(first) || !Number.isInteger(count) || count < 1)
  throw new Error("--seeds, --from and --seed are whole numbers");

const startEngine = (kernels, model) =>
  EngineCore.create({
    kernels,
    models: [model],
    cacheBytes: 1 << 20,
    freshSeed: () => 1,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });

const started = performance.now();
const worst = {};
const failures = [];
const { precision } = values;
// One device for all: most of the time goes into making its shaders.
let gpu = await openMachineGpu({ precision });
let gpuKernels = createWebGpuKernels(gpu);
for (let index = 0; index < count; index += 1) {
  const seed = first + index;
  const testCase = fuzzCase(seed);
  if (values.seed !== undefined) console.error(JSON.stringify(testCase.summary, undefined, 2));
  const cpuKernels = createWasmKernels({ threads: 1 });
  try {
    const engineOf = (kernels) => startEngine(kernels, testCase.model);
    const errors = await compareCase(testCase, { cpuKernels, gpuKernels, engineOf, precision });
    for (const [what, error] of Object.entries(errors)) {
      if (!(error <= (worst[what]?.error ?? -1))) worst[what] = { error, seed };
    }
  } catch (error) {
    failures.push({ seed, message: error.message });
    console.error(`seed ${seed}: ${error.stack}`);
    // One that lost the device must not cost the others.
    await gpuKernels.close();
    gpu = await openMachineGpu({ precision });
    gpuKernels = createWebGpuKernels(gpu);
  }
  await cpuKernels.close();
  if ((index + 1) % 25 === 0) console.error(`${index + 1} of ${count}, ${failures.length} failed`);
}
await gpuKernels.close();
const result = {
  fuzz: "gpu",
  adapter: gpu.info.name,
  precision,
  from: first,
  seeds: count,
  failed: failures.length,
  failures,
  worst,
  seconds: Math.round((performance.now() - started) / 1000),
  pass: failures.length === 0,
};
if (values.report) writeProofSection("fuzz-gpu", report(result));
console.log(JSON.stringify(result));
process.exit(result.pass ? 0 : 1);

function report({ adapter, seeds, failed, worst, seconds }) {
  const rows = Object.entries(worst).map(
    ([what, { error, seed }]) =>
      `| ${what} | ${error.toExponential(1)} | ${ALLOWED[precision][what]} | ${seed} |`,
  );
  return [
    `${seeds} cases on ${adapter} in ${seconds} s: **${failed} differ.** The largest errors among them:`,
    "",
    "| of | error | allowed | seed |",
    "| --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
}
