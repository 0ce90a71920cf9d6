// Where a step's time goes on the GPU, shader by shader: one training step, then steps of decoding.
// `node bench/gpu/profile.mjs [--shape Qwen3-0.6B] [--precision exact] [--rows 16] [--length 512] [--batch 1,64] [--only train|decode] [--sizes]`
// `--sizes` tells products of different sizes apart.
import { parseArgs } from "node:util";
import { medianSeconds, openEngine, sampleBatch, trainingStep } from "./engine.mjs";

const { values } = parseArgs({
  options: {
    shape: { type: "string", default: "Qwen3-0.6B" },
    precision: { type: "string", default: "exact" },
    rows: { type: "string", default: "16" },
    length: { type: "string", default: "512" },
    batch: { type: "string", default: "1,64" },
    only: { type: "string" },
    sizes: { type: "boolean", default: false },
  },
});
const { shape, precision } = values;
const [rows, length] = [Number(values.rows), Number(values.length)];

const QUERIES = 4096;
const [MAP_READ, COPY_SRC, COPY_DST, QUERY_RESOLVE] = [0x1, 0x4, 0x8, 0x200];

/** Two timestamps around every run of a shader; each run is then a pass of its own, which costs little. */
class ShaderTimer {
  #device;
  #queue;
  #sets = [];
  #names = [];

  constructor({ device }, { queue }) {
    this.#device = device;
    this.#queue = queue;
  }

  start() {
    this.#names = [];
    this.#queue.onRun = ({ name }, { m, n, k }) => {
      const at = 2 * this.#names.length;
      this.#names.push(values.sizes && m !== undefined ? `${name} of ${m}x${n}x${k}` : name);
      const index = Math.floor(at / QUERIES);
      this.#sets[index] ??= this.#device.createQuerySet({ type: "timestamp", count: QUERIES });
      const beginning = at % QUERIES;
      return {
        querySet: this.#sets[index],
        beginningOfPassWriteIndex: beginning,
        endOfPassWriteIndex: beginning + 1,
      };
    };
  }

  stop() {
    this.#queue.onRun = undefined;
  }

  /** By shader, the longest first. */
  async results() {
    await this.#queue.done();
    const times = await this.#timestamps();
    const shaders = new Map();
    this.#names.forEach((name, index) => {
      const shader = shaders.get(name) ?? { shader: name, runs: 0, ms: 0 };
      shaders.set(name, shader);
      shader.runs += 1;
      shader.ms += Number(times[2 * index + 1] - times[2 * index]) / 1e6;
    });
    return [...shaders.values()].sort((a, b) => b.ms - a.ms);
  }

  async #timestamps() {
    const count = 2 * this.#names.length;
    const bytes = 8 * QUERIES * Math.ceil(count / QUERIES);
    const device = this.#device;
    const resolved = device.createBuffer({ size: bytes, usage: QUERY_RESOLVE | COPY_SRC });
    const staging = device.createBuffer({ size: bytes, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    for (let first = 0; first < count; first += QUERIES) {
      const set = this.#sets[first / QUERIES];
      encoder.resolveQuerySet(set, 0, Math.min(QUERIES, count - first), resolved, 8 * first);
    }
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(MAP_READ);
    const times = new BigUint64Array(staging.getMappedRange().slice(0));
    resolved.destroy();
    staging.destroy();
    return times;
  }
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
const timer = new ShaderTimer(gpu, kernels);

if (values.only !== "decode") {
  const step = await trainingStep(engine, { shape, rows, length });
  const wallMs = 1000 * (await medianSeconds(step, { warmups: 2, times: 3 }));
  timer.start();
  await step();
  timer.stop();
  print(`training step of ${rows} x ${length}`, await timer.results(), 1, wallMs);
}

if (values.only !== "train") {
  const [skipped, measured] = [8, 8];
  for (const batch of values.batch.split(",").map(Number)) {
    const call = { shape, batch, prompt: 32, maxTokens: skipped + measured + 2 };
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
    print(`decoding step of ${batch}`, await timer.results(), measured, wallMs);
  }
}
await engine.close();
