// `tinkerts train sft` on `tinkerts serve`, either or both killed at random points of the run: what is learnt in the end
// must be, bit for bit, what a run learns that nobody disturbs, and each step must be written down once.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { ServerProcess } from "../crashes/server-process.mjs";
import { checkpointHash } from "../shared/checkpoint-files.mjs";
import { between, oneOf, randomFor } from "../shared/random.mjs";

const main = fileURLToPath(new URL("../../../dist/bundle/cli.js", import.meta.url));
const STEPS_PER_KILL = 8;
const ROWS = 48;
const BATCH = 4;
const POLL_MS = 5;
/** A run that takes longer hangs. */
const MAX_RUN_MS = 15 * 60_000;

/** `{ kills: { trainer, server, both }, restores, steps, differences, seconds }`. */
export async function runTraining({ from, kills, log }) {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-training-"));
  const startedMs = performance.now();
  try {
    const rows = join(folder, "rows.jsonl");
    writeFileSync(
      rows,
      Array.from({ length: ROWS }, (_, row) => `${JSON.stringify(conversation(row))}\n`).join(""),
    );
    const stepsPerEpoch = (ROWS - BATCH) / BATCH;
    const epochs = Math.ceil((kills * STEPS_PER_KILL) / stepsPerEpoch);
    const job = { rows, epochs, steps: epochs * stepsPerEpoch };
    const expected = await train({ ...job, home: join(folder, "expected"), moments: [], log });
    const moments = killMoments(randomFor("training", from), kills, job.steps);
    const disturbed = await train({ ...job, home: join(folder, "disturbed"), moments, log });
    const seconds = Math.round((performance.now() - startedMs) / 1000);
    const { kills: killed, restores } = disturbed;
    return { kills: killed, restores, steps: job.steps, differences: compare(expected, disturbed), seconds };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function conversation(row) {
  const word = (row * 7919).toString(36);
  return {
    messages: [
      { role: "user", content: `Say it twice: ${word}` },
      { role: "assistant", content: `${word} ${word}` },
    ],
  };
}

/** When a step is written down, and a little later, one or both are killed. */
function killMoments(random, kills, steps) {
  const distance = (steps - 2) / kills;
  return Array.from({ length: kills }, (_, index) => ({
    step: Math.floor((index + random()) * distance),
    delayMs: between(random, 0, 150),
    victim: oneOf(random, ["trainer", "server", "both"]),
  }));
}

async function train({ rows, epochs, home, moments, log }) {
  const dataDir = join(home, "data");
  const run = join(home, "run");
  const kills = { trainer: 0, server: 0, both: 0 };
  let server = await new ServerProcess({ dataDir }).started;
  const port = Number(new URL(server.baseURL).port);
  let trainer = new Trainer({ rows, epochs, run, baseURL: server.baseURL });
  const endMs = performance.now() + MAX_RUN_MS;
  try {
    for (const { step, delayMs, victim } of moments) {
      await until(() => lastStep(run) >= step, endMs);
      await sleep(delayMs);
      log(`  ${victim} killed after step ${lastStep(run)}`);
      kills[victim] += 1;
      if (victim !== "server") await trainer.kill();
      if (victim !== "trainer") {
        await server.kill();
        server = await new ServerProcess({ dataDir, port }).started;
      }
      if (victim !== "server") trainer = new Trainer({ rows, epochs, run, baseURL: server.baseURL });
    }
    await until(() => trainer.hasEnded, endMs);
    if (trainer.code !== 0) throw new Error(`the trainer ended with ${trainer.code}: ${trainer.said}`);
    const checkpoints = readLines(join(run, "checkpoints.jsonl"));
    const final = checkpoints.at(-1);
    return {
      kills,
      restores: (readFileSync(join(run, "logs.log"), "utf8").match(/Going on after/g) ?? []).length,
      metrics: readLines(join(run, "metrics.jsonl")).map(withoutTimes),
      final: {
        name: final.name,
        elapsedTokens: final.elapsed_tokens,
        epoch: final.epoch,
        batch: final.batch,
      },
      weights: checkpointHash(dataDir, final.state_path),
      sampler: checkpointHash(dataDir, final.sampler_path),
    };
  } finally {
    await trainer.kill();
    await server.kill();
  }
}

/** The command in a process of its own, which goes on where the last one was. */
class Trainer {
  said = "";
  #child;
  #exited;

  constructor({ rows, epochs, run, baseURL }) {
    const options = ["--model", "tinkerts/nano", "--rank", "2", "--epochs", String(epochs), "--folder", run];
    const sizes = ["--batch-size", String(BATCH), "--test-size", String(BATCH), "--save-every", "5"];
    const server = ["--base-url", baseURL, "--api-key", "tml-local"];
    const args = [main, "train", "sft", rows, ...options, ...sizes, ...server];
    this.#child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe"] });
    this.#exited = once(this.#child, "close");
    this.#child.stderr.setEncoding("utf8").on("data", (text) => {
      this.said = (this.said + text).slice(-2000);
    });
  }

  get hasEnded() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  get code() {
    return this.#child.exitCode;
  }

  async kill() {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }
}

function compare(expected, { metrics, final, weights, sampler }) {
  const differences = [];
  if (weights === undefined || weights !== expected.weights)
    differences.push("the final state has other bits");
  if (sampler === undefined || sampler !== expected.sampler)
    differences.push("the final weights have other bits");
  if (!isDeepStrictEqual(final, expected.final))
    differences.push(`the final line is ${JSON.stringify(final)}`);
  if (metrics.length !== expected.metrics.length)
    differences.push(`${metrics.length} lines of metrics instead of ${expected.metrics.length}`);
  for (const [index, line] of expected.metrics.entries()) {
    if (!isDeepStrictEqual(metrics[index], line))
      differences.push(`line ${index} of the metrics is ${JSON.stringify(metrics[index])}`);
  }
  return differences;
}

async function until(isTrue, endMs) {
  while (!isTrue()) {
    if (performance.now() > endMs) throw new Error("the run does not end");
    await sleep(POLL_MS);
  }
}

function lastStep(run) {
  const file = join(run, "metrics.jsonl");
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 2 : -1;
}

/** A line that is being written is none yet. */
function readLines(file) {
  const lines = readFileSync(file, "utf8").split("\n");
  return lines.slice(0, -1).map((line) => JSON.parse(line));
}

function withoutTimes(line) {
  return Object.fromEntries(Object.entries(line).filter(([name]) => !name.startsWith("time")));
}

/** The section of docs/proof.md. */
export function trainingReport({ kills, restores, steps, differences, seconds }) {
  const total = Object.values(kills).reduce((sum, each) => sum + each, 0);
  return `
\`tinkerts train sft\` of ${steps} steps on \`tinkerts serve\`, killed with SIGKILL at ${total} random points (${kills.trainer} times the trainer, ${kills.server} times the
server, ${kills.both} times both) and started again: **${differences.length} differences**, ${restores} resumptions, ${seconds} s. The final weights and the optimizer have the bits of the
run that nobody disturbed, and each step stands in \`metrics.jsonl\` once, with the same numbers.
${differences.map((text) => `- ${text}`).join("\n")}`;
}
