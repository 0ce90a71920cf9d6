// Where a step's time goes on the GPU, shader by shader: one training step, then steps of decoding.
// `node bench/gpu/profile.mjs [--shape Qwen3-0.6B] [--precision exact] [--rows 16] [--length 512] [--batch 1,64] [--only train|decode] [--adapter] [--sizes]`
// `--adapter` decodes with LoRA of rank 32 on everything, at temperature 1. `--sizes` tells products of different sizes apart.
import { parseArgs } from "node:util";
import { createAdapter, medianSeconds, openEngine, sampleBatch, trainingStep } from "./engine.mjs";
import { ShaderTimer } from "./shader-timer.mjs";

const { values } = parseArgs({
  options: {
    shape: { type: "string", default: "Qwen3-0.6B" },
    precision: { type: "string", default: "exact" },
    rows: { type: "string", default: "16" },
    length: { type: "string", default: "512" },
    batch: { type: "string", default: "1,64" },
    only: { type: "string" },
    adapter: { type: "boolean", default: false },
    sizes: { type: "boolean", default: false },
  },
});
const { shape, precision } = values;
const [rows, length] = [Number(values.rows), Number(values.length)];

/** By shader, the longest first. */
async function resultsOf(timer) {
  const shaders = new Map();
  for (const { name, params, ms } of await timer.runs()) {
    const { m, n, k } = params;
    const shown = values.sizes && m !== undefined ? `${name} of ${m}x${n}x${k}` : name;
    const shader = shaders.get(shown) ?? { shader: shown, runs: 0, ms: 0 };
    shaders.set(shown, shader);
    shader.runs += 1;
    shader.ms += ms;
  }
  return [...shaders.values()].sort((x, y) => y.ms - x.ms);
}

function print(title, shaders, steps, wallMs) {
  const total = shaders.reduce((sum, { ms }) => sum + ms, 0) / steps;
  const runs = shaders.reduce((sum, shader) => sum + shader.runs, 0) / steps;
  console.log(
    `\n${title}: ${total.toFixed(2)} ms on the GPU in ${runs} runs, ${wallMs.toFixed(2)} ms by the clock`,
  );
  for (const shader of shaders) {
    const ms = shader.ms / steps;
    const share = `${((100 * ms) / total).toFixed(1)}%`;
    const each = `${((1000 * shader.ms) / shader.runs).toFixed(1)} us each`;
    console.log(
      `${ms.toFixed(3).padStart(10)} ms ${share.padStart(6)} ${String(shader.runs / steps).padStart(7)} x ${each.padStart(14)}  ${shader.shader}`,
    );
  }
  console.log(JSON.stringify({ title, shape, precision, gpuMs: total, wallMs, runs, shaders }));
}

// Without it, Dawn rounds timestamps to a tenth of a millisecond.
const { engine, kernels, gpu, loadSeconds } = await openEngine(
  { shape, precision },
  { disable: ["timestamp_quantization"] },
);
console.log(`${gpu.info.name}, ${shape}, ${precision}, loaded in ${loadSeconds.toFixed(1)} s`);
const timer = new ShaderTimer(kernels);

if (values.only !== "decode") {
  const step = await trainingStep(engine, { shape, rows, length });
  const wallMs = 1000 * (await medianSeconds(step, { warmups: 2, times: 3 }));
  timer.start();
  await step();
  timer.stop();
  print(`training step of ${rows} x ${length}`, await resultsOf(timer), 1, wallMs);
}

if (values.only !== "train") {
  const [skipped, measured] = [8, 8];
  if (values.adapter && values.only === "decode") await createAdapter(engine, shape);
  const how = values.adapter ? { adapterId: "a", temperature: 1 } : {};
  for (const batch of values.batch.split(",").map(Number)) {
    const call = { shape, batch, prompt: 32, maxTokens: skipped + measured + 2, ...how };
    await sampleBatch(engine, call);
    const decoding = async (onStart, onEnd) => {
      let startedMs = 0;
      let stepMs = 0;
      await sampleBatch(engine, call, ({ position }) => {
        if (position === skipped) {
          startedMs = performance.now();
          onStart?.();
        } else if (position === skipped + measured) {
          stepMs = (performance.now() - startedMs) / measured;
          onEnd?.();
        }
      });
      return stepMs;
    };
    const wallMs = await decoding();
    await decoding(
      () => timer.start(),
      () => timer.stop(),
    );
    print(`decoding step of ${batch}`, await resultsOf(timer), measured, wallMs);
  }
}
await engine.close();
