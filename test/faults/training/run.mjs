// `tinkerts train` on `tinkerts serve`, either or both killed at random points of each run: the final weights must
// be, bit for bit, those of an undisturbed run, and each step must be trained and written down once.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { ServerProcess } from "../crashes/server-process.mjs";
import { checkpointFolder, checkpointHash } from "../shared/checkpoint-files.mjs";
import { between, oneOf, randomFor } from "../shared/random.mjs";
import { KINDS } from "./kinds.mjs";

const main = fileURLToPath(new URL("../../../dist/bundle/cli.js", import.meta.url));
const STEPS = 8;
const MAX_KILLS = 2;
const MAX_DELAY_MS = 400;
const POLL_MS = 5;
/** Metrics that differ when steps are trained again: times and what was spent. */
const REPEATED = /^(?:time|tokens\/|cost\/)/;
/** A run that takes longer hangs. */
const MAX_RUN_MS = 5 * 60_000;

/** `{ kinds: { KIND: { runs, steps, kills, restores, differences, seconds } }, kills, differences }`. */
export async function runTraining({ from, seeds, log }) {
  const kinds = {};
  for (const kind of Object.keys(KINDS)) {
    log(`  ${kind}`);
    kinds[kind] = await runKind({ kind, from, seeds, log });
  }
  const each = Object.values(kinds);
  return {
    kinds,
    kills: total(each.map(({ kills }) => kills)),
    differences: each.flatMap(({ differences }) => differences),
  };
}

async function runKind({ kind, from, seeds, log }) {
  const home = mkdtempSync(join(tmpdir(), "tinkerts-training-"));
  const startedMs = performance.now();
  const { prepare, isExact, check = () => [] } = KINDS[kind];
  const { command, steps } = prepare(home, STEPS);
  const backend = new Backend(join(home, "data"));
  try {
    await backend.start();
    const undisturbed = await train({ backend, command, run: join(home, "undisturbed"), moments: [], log });
    const results = [];
    const differences = [];
    for (let seed = from; seed < from + seeds; seed += 1) {
      const moments = killMoments(randomFor("training", kind, seed), steps);
      const run = join(home, `seed-${seed}`);
      const disturbed = await train({ backend, command, run, moments, log });
      results.push(disturbed);
      const found = [...compare(undisturbed, disturbed, { isExact }), ...check(run)];
      differences.push(...found.map((text) => `${kind}, seed ${seed}: ${text}`));
    }
    return {
      runs: seeds,
      steps,
      kills: total(results.map(({ kills }) => kills)),
      restores: results.reduce((sum, { restores }) => sum + restores, 0),
      differences,
      seconds: Math.round((performance.now() - startedMs) / 1000),
    };
  } finally {
    await backend.kill();
    rmSync(home, { recursive: true, force: true });
  }
}

/** When a step is written down, the first one being that the run has begun, and a little later one or both are killed. */
function killMoments(random, steps) {
  const kills = 1 + Math.floor(random() * MAX_KILLS);
  const distance = (steps - 1) / kills;
  return Array.from({ length: kills }, (_, index) => ({
    step: Math.floor((index + random()) * distance) - 1,
    delayMs: between(random, 0, MAX_DELAY_MS),
    victim: oneOf(random, ["trainer", "server", "both"]),
  }));
}

async function train({ backend, command, run, moments, log }) {
  mkdirSync(run);
  const kills = { trainer: 0, server: 0, both: 0 };
  const start = () => new Trainer([...command, "--folder", run], backend.baseURL);
  let trainer = start();
  const endMs = performance.now() + MAX_RUN_MS;
  try {
    for (const { step, delayMs, victim } of moments) {
      await until(() => trainer.hasEnded || hasReached(run, step), endMs);
      await sleep(delayMs);
      log(`    ${victim} killed after step ${lastStep(run)}`);
      kills[victim] += 1;
      if (victim !== "server") await trainer.kill();
      if (victim !== "trainer") await backend.restart();
      if (victim !== "server") trainer = start();
    }
    await until(() => trainer.hasEnded, endMs);
    if (trainer.code !== 0) throw new Error(`the trainer ended with ${trainer.code}: ${trainer.said}`);
    return { kills, ...outcomeOf(backend.dataDir, run) };
  } finally {
    await trainer.kill();
  }
}

function outcomeOf(dataDir, run) {
  const final = readLines(join(run, "checkpoints.jsonl")).at(-1);
  const { name, epoch, batch } = final;
  return {
    restores: (readFileSync(join(run, "logs.log"), "utf8").match(/Going on after/g) ?? []).length,
    metrics: readLines(join(run, "metrics.jsonl")).map(withoutRepeated),
    used: readLines(join(run, "metrics.jsonl")).map(usedBy),
    warnings: existsSync(join(run, "warnings.jsonl")) ? readLines(join(run, "warnings.jsonl")) : [],
    prompts: promptsOf(run),
    final: { name, epoch, batch, updates: updatesIn(checkpointFolder(dataDir, final.state_path)) },
    weights: checkpointHash(dataDir, final.state_path),
    sampler: checkpointHash(dataDir, final.sampler_path),
  };
}

/** Steps of the optimizer that are in a state. */
function updatesIn(folder) {
  const bytes = readFileSync(join(folder, "optimizer.safetensors"));
  const header = bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE()));
  return Number(JSON.parse(header.toString()).__metadata__.step);
}

/** What a run by reward was asked, step by step. */
function promptsOf(run) {
  const steps = readdirSync(run).filter((name) => /^iteration_\d+$/.test(name));
  return steps
    .sort()
    .map((step) => join(run, step, "train_rollout_summaries.jsonl"))
    .filter(existsSync)
    .flatMap((file) => readLines(file).map(({ messages }) => messages[0].content));
}

class Backend {
  #server;

  constructor(dataDir) {
    this.dataDir = dataDir;
  }

  get baseURL() {
    return this.#server.baseURL;
  }

  async start(port) {
    this.#server = await new ServerProcess({ dataDir: this.dataDir, port }).started;
  }

  async restart() {
    const { port } = new URL(this.baseURL);
    await this.kill();
    await this.start(Number(port));
  }

  async kill() {
    await this.#server?.kill();
  }
}

/** The command in a process of its own, which goes on where the last one was. */
class Trainer {
  said = "";
  #child;
  #exited;

  constructor(command, baseURL) {
    const model = ["--model", "tinkerts/nano", "--rank", "2"];
    const server = ["--base-url", baseURL, "--api-key", "tml-local"];
    const args = [main, ...command, ...model, ...server];
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

/** What a run that was disturbed does not have in common with one that was not. */
function compare(expected, { metrics, used, warnings, prompts, final, weights, sampler }, { isExact }) {
  const differences = [];
  if (!isDeepStrictEqual(final, expected.final))
    differences.push(`the end is ${JSON.stringify(final)} instead of ${JSON.stringify(expected.final)}`);
  // A step takes more where a batch has nothing to teach, so that the last one may end elsewhere.
  const both = Math.min(prompts.length, expected.prompts.length);
  if (!isDeepStrictEqual(prompts.slice(0, both), expected.prompts.slice(0, both)))
    differences.push("a problem is missing, comes twice, or not in its turn");
  const steps = (lines) => lines.map(({ step }) => step);
  if (!isDeepStrictEqual(steps(metrics), steps(expected.metrics)))
    differences.push(`the metrics are of steps ${steps(metrics)} instead of ${steps(expected.metrics)}`);
  if (used.some((each, index) => each.some((count, kind) => count < (used[index - 1]?.[kind] ?? 0))))
    differences.push(`the tokens become fewer: ${JSON.stringify(used)}`);
  if (!isExact) return differences;
  // What was sent again counts again; nothing that was sent is forgotten.
  if (used.at(-1).some((count, kind) => count < expected.used.at(-1)[kind]))
    differences.push(`the tokens are ${used.at(-1)}, fewer than ${expected.used.at(-1)}`);
  if (!isDeepStrictEqual(warnings, expected.warnings))
    differences.push(
      `the warnings are ${JSON.stringify(warnings)} instead of ${JSON.stringify(expected.warnings)}`,
    );
  if (weights === undefined || weights !== expected.weights)
    differences.push("the final state has other bits");
  if (sampler === undefined || sampler !== expected.sampler)
    differences.push("the final weights have other bits");
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

/** Before the first step there is a run once its settings are written down. */
function hasReached(run, step) {
  return existsSync(join(run, "config.json")) && lastStep(run) >= step;
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

function withoutRepeated(line) {
  return Object.fromEntries(Object.entries(line).filter(([name]) => !REPEATED.test(name)));
}

/** Tokens by a line; those of prompts count alike, whether the server had them in its cache or not. */
function usedBy(line) {
  const tokens = (kind) => line[`tokens/${kind}`] ?? 0;
  return [tokens("train"), tokens("sample"), tokens("prefill") + tokens("cached_prefill")];
}

function total(counts) {
  const sum = {};
  for (const each of counts)
    for (const [name, count] of Object.entries(each)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

/** The section of docs/proof.md. */
export function trainingReport({ kinds, differences }) {
  const lines = Object.entries(kinds).map(
    ([kind, { runs, steps, kills, restores, differences: found, seconds }]) =>
      `| ${kind} | ${runs} of ${steps} steps | ${kills.trainer} | ${kills.server} | ${kills.both} | ${restores} | ${found.length} | ${seconds} |`,
  );
  return `
\`tinkerts train\` on \`tinkerts serve\`, each run killed with SIGKILL at one or two random points (the trainer, the server or both) and started
again: **${differences.length} differences**. Each step is in the final weights once (the optimizer counts), stands in \`metrics.jsonl\` once, and was trained on the
same rows or problems. Agents are programs that ask again, edit what they said and kill themselves between turns; their gateway ends with the
trainer. Every answer that was trained is among those that the gateway recorded as sampled. The final weights and the optimizer have the bits of the undisturbed run, and the metrics its numbers; not so
in the asynchronous loop of training by reward, where it is a matter of time which weights sample.

| training | runs | trainer killed | server killed | both killed | resumptions | differences | seconds |
|---|---|---|---|---|---|---|---|
${[...lines, ...differences.map((text) => `\n- ${text}`)].join("\n")}`;
}
