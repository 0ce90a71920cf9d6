// `npm run fuzz:gpu -- --seeds 500 [--from 1] [--report]`: random models, adapters and batches on the GPU's kernels against the CPU's
// engine: losses, logprobs, gradients, optimizer steps, then samples. `--seed N` repeats one case and shows it. It ends
// with one JSON line. Needs a build; runs on the machine's card, or on SwiftShader where VK_DRIVER_FILES names it.
import { parseArgs } from "node:util";
import { EngineCore } from "../dist/local/engine/engine-core.js";
import { createWasmKernels } from "../dist/local/engine/kernels/wasm-kernels.node.js";
import { openMachineGpu } from "../dist/local/engine/kernels/webgpu/dawn.node.js";
import { createWebGpuKernels } from "../dist/local/engine/kernels/webgpu/webgpu-kernels.js";
import { fuzzCase } from "./fuzz-gpu/case.mjs";
import { ALLOWED, compareCase } from "./fuzz-gpu/compare.mjs";
import { writeProofSection } from "./proof-section.mjs";

/** Weights live as long as their device; now and then a fresh one keeps memory small. */
const CASES_PER_DEVICE = 50;

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "50" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    precision: { type: "string", default: "exact" },
    report: { type: "boolean", default: false },
  },
});
const first = Number(values.seed ?? values.from);
const count = values.seed === undefined ? Number(values.seeds) : 1;
if (!Number.isInteger(first) || !Number.isInteger(count) || count < 1)
  throw new Error("--seeds, --from and --seed are whole numbers");

async function openGpu() {
  const gpu = await openMachineGpu({ precision: values.precision });
  return { name: gpu.info.name, kernels: createWebGpuKernels(gpu) };
}

const engineOf = (kernels, model) =>
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
let gpu;
for (let index = 0; index < count; index += 1) {
  const seed = first + index;
  const testCase = fuzzCase(seed);
  if (values.seed !== undefined) console.error(JSON.stringify(testCase.summary, undefined, 2));
  if (index % CASES_PER_DEVICE === 0) {
    await gpu?.kernels.close();
    gpu = await openGpu();
  }
  const cpuKernels = createWasmKernels({ threads: 1 });
  try {
    const errors = await compareCase(
      testCase,
      gpu.kernels,
      (kernels) => engineOf(kernels, testCase.model),
      cpuKernels,
    );
    for (const [what, error] of Object.entries(errors)) {
      if (!(error <= (worst[what]?.error ?? -1))) worst[what] = { error, seed };
    }
  } catch (error) {
    failures.push({ seed, message: error.message });
    console.error(`seed ${seed}: ${error.stack}`);
  }
  await cpuKernels.close();
  if ((index + 1) % 25 === 0) console.error(`${index + 1} of ${count}, ${failures.length} failed`);
}
const name = gpu.name;
await gpu.kernels.close();
const result = {
  fuzz: "gpu",
  adapter: name,
  precision: values.precision,
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
    ([what, { error, seed }]) => `| ${what} | ${error.toExponential(1)} | ${ALLOWED[what]} | ${seed} |`,
  );
  return [
    `${seeds} cases on ${adapter} in ${seconds} s: **${failed} differ.** The largest errors among them:`,
    "",
    "| of | error | allowed | seed |",
    "| --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
}
