// Runs of one workload, each over a network that is disturbed in the way its seed says.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { checkpointHash } from "../shared/checkpoint-files.mjs";
import { between, randomFor } from "../shared/random.mjs";
import { scaledClock } from "../shared/scaled-clock.mjs";
import { writeTinyModel } from "../shared/tiny-model.mjs";
import { differences, leftoversOf, outcomeOf } from "./check.mjs";
import { FaultPlan } from "./fault-plan.mjs";
import { FaultProxy } from "./fault-proxy.mjs";
import { ClientHistory, runWorkload } from "./workload.mjs";

const STALLED_MS = 60_000;

/** Two kinds of servers a client can meet; even seeds get the first. */
const CONFIGURATIONS = [
  { fwdbwdMaxChunkLen: 2 },
  {
    fwdbwdMaxChunkLen: 2,
    parallelFwdbwdChunks: false,
    sampleUseRetrieveFutures: true,
    createModelViaLoadWeights: true,
  },
];

class Backend {
  constructor(settings) {
    this.dataDir = settings.dataDir;
    this.process = fork(fileURLToPath(new URL("./backend.mjs", import.meta.url)), [JSON.stringify(settings)]);
    this.ended = once(this.process, "exit").then(([code]) => {
      throw new Error(`the backend ended with ${code}`);
    });
    this.ended.catch(() => {});
  }

  async start() {
    this.baseURL = (await this.#message()).baseURL;
    return this;
  }

  async history() {
    this.process.send("history");
    return (await this.#message()).history;
  }

  async close() {
    this.process.send("close");
    await this.ended.catch(() => {});
  }

  async #message() {
    const [message] = await Promise.race([once(this.process, "message"), this.ended]);
    return message;
  }
}

/** `{ runs, steps, samples, exchanges, faults by kind, differences, seconds }`. */
export async function runNetwork({ from, seeds, steps, samples, log }) {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-network-"));
  const startedMs = performance.now();
  const result = { runs: 0, steps: 0, samples: 0, exchanges: 0, faults: {}, differences: [] };
  const backends = new Map();
  const sizes = { steps, samples };
  try {
    const modelFolder = join(folder, "model");
    await writeTinyModel(modelFolder);
    for (let seed = from; seed < from + seeds; seed += 1) {
      const configuration = seed % CONFIGURATIONS.length;
      if (!backends.has(configuration)) {
        const dataDir = join(folder, `data-${configuration}`);
        const clientConfig = CONFIGURATIONS[configuration];
        const backend = await new Backend({ modelFolder, dataDir, clientConfig }).start();
        backends.set(configuration, { backend, expected: await undisturbed(backend, sizes) });
      }
      const { backend, expected } = backends.get(configuration);
      const run = await disturbed(backend, seed, sizes, expected);
      result.runs += 1;
      result.steps += steps;
      result.samples += samples;
      result.exchanges += run.exchanges;
      for (const [kind, count] of Object.entries(run.faults))
        result.faults[kind] = (result.faults[kind] ?? 0) + count;
      const count = Object.values(run.faults).reduce((sum, each) => sum + each, 0);
      log(
        `seed ${seed}: ${run.exchanges} exchanges, ${count} faults, ${run.seconds.toFixed(1)} s: ` +
          (run.differences.length === 0 ? "as undisturbed" : `${run.differences.length} differences`),
      );
      for (const text of run.differences) {
        log(`  ${text}`);
        result.differences.push(`seed ${seed}: ${text.split("\n")[0]}`);
      }
      if (run.differences.length > 0)
        log(`  again: npm run faults -- --seeds 1 --from ${seed} --steps ${steps} --samples ${samples}`);
    }
  } finally {
    for (const { backend } of backends.values()) await backend.close();
    rmSync(folder, { recursive: true, force: true });
  }
  result.faults = Object.fromEntries(Object.entries(result.faults).sort(([a], [b]) => (a < b ? -1 : 1)));
  return { ...result, seconds: Math.round((performance.now() - startedMs) / 1000) };
}

const quiet = { logLevel: "off", apiKey: "tml-local" };

async function undisturbed(backend, sizes) {
  const history = new ClientHistory();
  const clientOptions = { ...quiet, baseURL: backend.baseURL, clock: scaledClock() };
  const end = await runWorkload({ clientOptions, ...sizes, pipelining: 8, history });
  return { operations: history.operations, outcome: await collect(backend, history, end) };
}

async function collect(backend, history, end) {
  return outcomeOf({
    operations: history.operations,
    backendHistory: await backend.history(),
    modelId: end?.modelId,
    adapterHash: end && checkpointHash(backend.dataDir, end.statePath),
  });
}

async function disturbed(backend, seed, sizes, expected) {
  const startedMs = performance.now();
  const clock = scaledClock();
  const plan = new FaultPlan(seed);
  const proxy = new FaultProxy({ seed, baseURL: backend.baseURL, plan, wallNow: () => clock.wallNow() });
  await proxy.start();
  const warnings = [];
  const onWarning = (warning) => warnings.push(String(warning.stack ?? warning));
  process.on("warning", onWarning);
  const random = randomFor(seed, "client");
  const history = new ClientHistory();
  const run = { operations: history.operations, error: undefined, leftovers: [] };
  let end;
  try {
    const clientOptions = { ...quiet, baseURL: proxy.baseURL, clock, random };
    const pipelining = Math.floor(between(random, 2, 24));
    end = await unlessItHangs(runWorkload({ clientOptions, ...sizes, pipelining, history }), history);
    run.leftovers = await leftoversOf(proxy, warnings);
  } catch (error) {
    run.error = error;
  } finally {
    process.off("warning", onWarning);
    await proxy.close();
  }
  const outcome = await collect(backend, history, end);
  return {
    exchanges: proxy.exchanges,
    faults: plan.injected,
    differences: differences(run, outcome, expected),
    seconds: (performance.now() - startedMs) / 1000,
  };
}

/** Rejects when nothing has ended for a long time: slow machines are no difference, hanging clients are. */
async function unlessItHangs(work, { operations }) {
  let timer;
  const hang = new Promise((_, reject) => {
    let ended = 0;
    timer = setInterval(() => {
      const before = ended;
      ended = operations.filter(({ end }) => end !== null).length;
      if (ended === before) reject(new Error(`the run hangs: nothing has ended for ${STALLED_MS / 1000} s`));
    }, STALLED_MS);
  });
  try {
    return await Promise.race([work, hang]);
  } finally {
    clearInterval(timer);
  }
}

/** The section of docs/proof.md. */
export function networkReport(result) {
  const kinds = Object.entries(result.faults).sort(([, a], [, b]) => b - a);
  const total = kinds.reduce((sum, [, count]) => sum + count, 0);
  return `
${result.runs} runs of ${result.steps / result.runs} pipelined training steps and ${result.samples / result.runs} samples each, every run over a
proxy that disturbs it in the way its seed says: ${total.toLocaleString("en")} faults in ${result.exchanges.toLocaleString("en")} exchanges, ${result.seconds} s.
**${result.differences.length} differences.** In each run: no error; each operation executed exactly once and in order, each optimizer step between its call and its
answer (the engine's own history beside the client's); losses, logprobs and sampled tokens as in the undisturbed run; the final adapter
and its optimizer state bit for bit; no connection left open, no warning. Half of the runs meet a server that tells of finished
samples in bulk and takes the chunks of a batch one by one. Timeouts pass ten times as fast as on a clock, waits between tries a hundred times.

| fault | times | fault | times | fault | times |
|---|---|---|---|---|---|
${rowsOfThree(kinds).join("\n")}

A fault is injected where the protocol lets a client mend it: a 409 to a save under a name, a 410 to anything but a poll and a 400 with a body
to anything but a poll are answers, and reach the caller. Corrupt protobuf is of the kind a reader can notice; the protocol has no checksums.
${result.differences.map((text) => `- ${text}`).join("\n")}`;
}

function rowsOfThree(kinds) {
  const rows = [];
  for (let index = 0; index < kinds.length; index += 3) {
    const cells = [0, 1, 2].flatMap((offset) => kinds[index + offset] ?? ["", ""]);
    rows.push(`| ${cells.join(" | ")} |`);
  }
  return rows;
}
