// Pretrains tinkerts/nano with this repository's engine, in as many runs as it takes; needs `npm run build` first.
//   node scripts/nano/train.mjs --work FOLDER [--minutes 9] [--threads N] [--relaxed-simd] [--steps N]
// Each run goes on from the checkpoint in FOLDER and ends with 0 when the model is finished (its weights are then in
// models/nano) or with 3 when the minutes are used up. Without --relaxed-simd the weights come out the same, bit for
// bit, on every machine, whatever the number of threads and of runs, as long as the engine is not changed.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { encodeSafetensors } from "../../dist/checkpoints/safetensors.js";
import { createWasmKernels } from "../../dist/local/engine/kernels/wasm-kernels.node.js";
import { normalArray } from "../../dist/local/engine/philox.js";
import { FullTrainer } from "../full-trainer.mjs";
import { makeBatch } from "./batches.mjs";
import { ByteLevelTokenizer } from "./bpe.mjs";
import { initialTensors, MODEL_FOLDER } from "./model.mjs";
import { learningRateAt, recipe } from "./recipe.mjs";

const { values: flags } = parseArgs({
  options: {
    work: { type: "string" },
    minutes: { type: "string", default: "Infinity" },
    threads: { type: "string", default: String(availableParallelism()) },
    "relaxed-simd": { type: "boolean", default: false },
    /** A shorter training, to try things out; its weights are not copied to models/nano. */
    steps: { type: "string", default: String(recipe.steps) },
    /** Stop after so many steps in all, to time them. */
    until: { type: "string", default: "Infinity" },
  },
});
const [minutes, threads, steps] = [flags.minutes, flags.threads, flags.steps].map(Number);
const until = Math.min(Number(flags.until), steps);
if (!flags.work || ![minutes, threads, steps, until].every((value) => value > 0))
  throw new Error("usage: train.mjs --work FOLDER [--minutes 9] [--threads N] [--relaxed-simd] [--steps N]");

const EXIT_GO_ON = 3;
const SAVE_EVERY_MS = 150_000;
const PRINT_EVERY = 20;
const started = performance.now();

const checkpoint = join(flags.work, "checkpoint");
const previous = join(flags.work, "previous");
const progressFile = (folder) => join(folder, "progress.json");
const readJson = (path) => JSON.parse(readFileSync(path, "utf8"));

/** Writes `folder` by way of another name, so that a whole checkpoint exists at every moment. */
async function replaceCheckpoint(write) {
  const fresh = join(flags.work, "saving");
  rmSync(fresh, { recursive: true, force: true });
  mkdirSync(fresh, { recursive: true });
  await write(fresh);
  rmSync(previous, { recursive: true, force: true });
  if (existsSync(checkpoint)) renameSync(checkpoint, previous);
  renameSync(fresh, checkpoint);
  rmSync(previous, { recursive: true, force: true });
}

const tokenizer = new ByteLevelTokenizer(readJson(new URL("tokenizer.json", MODEL_FOLDER)));
const configText = readFileSync(new URL("config.json", MODEL_FOLDER));
if (!existsSync(checkpoint) && existsSync(previous)) renameSync(previous, checkpoint);
if (!existsSync(checkpoint)) {
  await replaceCheckpoint((folder) => {
    writeFileSync(join(folder, "config.json"), configText);
    const tensors = initialTensors(JSON.parse(configText), normalArray);
    writeFileSync(join(folder, "model.safetensors"), encodeSafetensors(tensors));
    writeFileSync(
      progressFile(folder),
      JSON.stringify({ steps, seconds: 0, threads, kernels: [], losses: [] }),
    );
  });
}

const kernels = createWasmKernels({ threads, relaxedSimd: flags["relaxed-simd"] });
const trainer = FullTrainer.load(kernels, checkpoint, { microTokens: recipe.rows * recipe.length });
const progress = readJson(progressFile(checkpoint));
if (progress.steps !== steps)
  throw new Error(
    `the checkpoint in ${checkpoint} is of a training of ${progress.steps} steps, not ${steps}`,
  );
if (!progress.kernels.includes(kernels.name)) progress.kernels.push(kernels.name);
progress.threads = threads;
const secondsBefore = progress.seconds;

async function save() {
  progress.seconds = Math.round(secondsBefore + (performance.now() - started) / 1000);
  await replaceCheckpoint(async (folder) => {
    await trainer.save(folder, { state: true });
    writeFileSync(progressFile(folder), JSON.stringify(progress));
  });
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds) % 60).padStart(2, "0")}`;
const { seed, rows, length } = recipe;
console.log(
  `${trainer.parameters} parameters, ${kernels.name} on ${threads} threads, from step ${trainer.step} of ${steps}`,
);
let lastSave = performance.now();
let printed = { step: trainer.step, time: performance.now() };
let recent = [];
while (trainer.step < until && performance.now() - started < minutes * 60_000) {
  const { step } = trainer;
  const examples = makeBatch(tokenizer, { seed, step, steps, rows, length }).map((row) => ({
    tokens: row.subarray(0, length),
    targets: row.subarray(1),
  }));
  const { loss, gradNorm } = await trainer.train(examples, {
    ...recipe,
    learningRate: learningRateAt(step, steps),
  });
  if (!Number.isFinite(loss)) throw new Error(`the loss of step ${step} is ${loss}`);
  recent.push(loss);
  const now = performance.now();
  if (trainer.step % PRINT_EVERY === 0 || trainer.step === until) {
    const mean = recent.reduce((sum, value) => sum + value, 0) / recent.length;
    progress.losses.push([trainer.step, Number(mean.toFixed(4))]);
    const perStep = (now - printed.time) / (trainer.step - printed.step) / 1000;
    console.log(
      `step ${trainer.step}/${steps}  loss ${mean.toFixed(4)}  norm ${gradNorm.toFixed(2)}  ` +
        `${Math.round((rows * length) / perStep)} tokens/s  ${clock((steps - trainer.step) * perStep)} left`,
    );
    recent = [];
    printed = { step: trainer.step, time: now };
  }
  if (now - lastSave > SAVE_EVERY_MS) {
    await save();
    lastSave = performance.now();
  }
}
await save();
await kernels.close();
if (trainer.step < steps) {
  console.log(`saved step ${trainer.step} of ${steps}: run again to go on`);
  process.exitCode = EXIT_GO_ON;
} else if (steps === recipe.steps) {
  copyFileSync(join(checkpoint, "model.safetensors"), new URL("model.safetensors", MODEL_FOLDER));
  const record = { tokens: steps * rows * length, ...progress };
  writeFileSync(new URL("training.json", MODEL_FOLDER), `${JSON.stringify(record)}\n`);
  console.log(`finished: ${clock(progress.seconds)} in all, weights in models/nano`);
}
