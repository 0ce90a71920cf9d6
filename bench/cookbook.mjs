// The cookbook beside the Python one, on the same rows and the same backend (tinkerts/nano, in a process of its own).
//   rowsPerSecond  conversations rendered and tokenized to datums, the best of several rounds
//   busy           the share of a supervised run in which the engine has work, evaluations and saves included
//   seconds        that run from the call to its end
// Bars: rendering at least 3 times the Python cookbook, the engine busy at least 95% of the time, the run no slower.
// TINKERTS_PYTHON names a Python with tinker-cookbook; without it ours is measured alone.
// Needs a build: npm run build.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { toExamples } from "../dist/cookbook/data/index.js";
import { conversations, datumFromExample, trainSupervised } from "../dist/cookbook/index.js";
import { ServiceClient } from "../dist/index.js";
import { getRenderer } from "../dist/renderers/index.js";
import { loadTokenizer } from "../dist/tokenizers/index.js";
import { MeasuredServer, python, round, takeBest } from "./cookbook/peers.mjs";
import { sized } from "./shared/sized.mjs";

const MODEL = "tinkerts/nano";
const RENDER_BAR = 3;
const BUSY_BAR = 0.95;
const SETTINGS = {
  rows: sized(128, 24),
  testSize: 8,
  batchSize: 8,
  epochs: sized(2, 1),
  rank: 16,
  evaluateEvery: 10,
  saveEvery: 10,
  maxLength: 512,
  rounds: sized(20, 1),
  turns: sized(2, 1),
};

const folder = mkdtempSync(join(tmpdir(), "tinkerts-bench-"));
const rowsFile = join(folder, "rows.jsonl");
const rows = Array.from({ length: SETTINGS.rows }, (_, row) => conversation(row));
writeFileSync(rowsFile, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
// Python takes a folder of the model's name for the model.
mkdirSync(join(folder, "tinkerts"));
symlinkSync(fileURLToPath(new URL("../models/nano", import.meta.url)), join(folder, MODEL));

const server = await MeasuredServer.start();
try {
  const ours = { rowsPerSecond: await renderRate() };
  const theirs = python && { rowsPerSecond: runPython("render", rowsFile).rowsPerSecond };
  // In turns, and the best of each: other work on the machine hits both alike.
  for (let turn = 0; turn < SETTINGS.turns; turn += 1) {
    takeBest(ours, await server.measured(() => train(server.backend, join(folder, `tinkerts-${turn}`))));
    if (theirs) {
      const args = ["train", rowsFile, join(folder, `python-${turn}`)];
      takeBest(theirs, await server.measured(() => runPython(...args)));
    }
  }
  const faster = theirs && ours.rowsPerSecond / theirs.rowsPerSecond;
  const bars = {
    [`the engine is busy ${100 * BUSY_BAR}% of the time`]: ours.busy >= BUSY_BAR,
    ...(theirs && {
      [`rendering is ${RENDER_BAR} times as fast as in Python`]: faster >= RENDER_BAR,
      "a run takes no longer than in Python": ours.seconds <= theirs.seconds,
    }),
  };
  const figures = ({ rowsPerSecond, busy, seconds }) => ({
    rowsPerSecond: Math.round(rowsPerSecond),
    busy: round(busy),
    seconds: round(seconds),
  });
  console.log(
    JSON.stringify({
      bench: "cookbook",
      steps: ours.steps,
      tinkerts: figures(ours),
      python: theirs ? figures(theirs) : null,
      timesAsFastToRender: theirs ? round(faster) : null,
      bars,
      pass: Object.values(bars).every(Boolean),
    }),
  );
} finally {
  server.close();
  rmSync(folder, { recursive: true, force: true });
}

function conversation(row) {
  const sums = Array.from({ length: 12 }, (_, term) => `${row} + ${term} = ${row + term}.`);
  return {
    messages: [
      { role: "system", content: "You are a patient teacher of arithmetic." },
      { role: "user", content: `Count on from ${row}, in twelve sums.` },
      { role: "assistant", content: sums.join(" ") },
      { role: "user", content: "Was that all?" },
      { role: "assistant", content: "Yes, that was all of it." },
    ],
  };
}

async function renderRate() {
  const renderer = getRenderer("qwen3_instruct", await loadTokenizer(MODEL));
  let bestMs = Number.POSITIVE_INFINITY;
  for (let round = 0; round < SETTINGS.rounds; round += 1) {
    const began = performance.now();
    for (const row of rows) {
      for (const example of toExamples(row, renderer, "all_assistant_messages")) {
        datumFromExample(example, { maxLength: SETTINGS.maxLength, reduction: "mean" });
      }
    }
    bestMs = Math.min(bestMs, performance.now() - began);
  }
  return (1000 * rows.length) / bestMs;
}

async function train({ baseURL, apiKey }, runFolder) {
  const { testSize, batchSize, epochs, rank, evaluateEvery, saveEvery, maxLength } = SETTINGS;
  const service = new ServiceClient({ baseURL, apiKey });
  const began = performance.now();
  const run = await trainSupervised({
    service,
    model: MODEL,
    data: conversations(rowsFile),
    folder: runFolder,
    ...{ testSize, batchSize, epochs, rank, evaluateEvery, maxLength },
    learningRate: 1e-3,
    save: { everySteps: saveEvery },
    loggers: [],
  });
  const seconds = (performance.now() - began) / 1000;
  await service.close();
  return { seconds, steps: run.steps };
}

function runPython(...args) {
  const shims = fileURLToPath(new URL("../test/conformance/python/shims", import.meta.url));
  const env = { SHIMS: shims, SETTINGS: JSON.stringify(SETTINGS) };
  return server.runPython("./client.py", args, { cwd: folder, env });
}
