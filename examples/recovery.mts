/**
 * A run that survives its server. `runWithRecovery` saves checkpoints, notices when the server, the session or the network
 * is gone, restores weights and optimizer, and continues at the right step. `RunLog` keeps a record on disk, so that this
 * program also continues when it is started again.
 *
 * Here the server is another process (this file, started with "serve") that is killed twice during the run.
 * A second, undisturbed run ends with the same weights, bit for bit: no step was trained twice or skipped.
 *
 * For a server elsewhere, write `service: () => new ServiceClient()`.
 */
import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Datum, datumFromAnswer, ServiceClient } from "tinkerts";
import { downloadCheckpoint, readAdapter } from "tinkerts/checkpoints";
import { startLocalBackend } from "tinkerts/local";
import { RunLog } from "tinkerts/run-log";
import { loadTokenizer } from "tinkerts/tokenizers";
import { type RunCheckpoint, type RunEvent, runWithRecovery } from "tinkerts/training";

const baseModel = "tinkerts/nano";
const steps = 40;
const killedAt = [13, 31];

/** The server's side of this file: a backend at a port, with a folder to keep its checkpoints in. */
async function serve(dataDir: string, port: string): Promise<void> {
  const backend = await startLocalBackend({ dataDir, port: Number(port) });
  process.send!(backend.baseURL);
  process.once("disconnect", () => process.exit()); // the program has ended
}

async function main(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "tinkerts-supervised-"));
  const tokenizer = await loadTokenizer(baseModel);
  let server: ChildProcess;
  let baseURL = "";

  async function startServer(): Promise<void> {
    const port = baseURL === "" ? "0" : new URL(baseURL).port; // it comes back where it was
    server = fork(fileURLToPath(import.meta.url), ["serve", join(folder, "data"), port]);
    [baseURL] = (await once(server, "message")) as [string];
  }

  async function killServer(): Promise<void> {
    server.kill("SIGKILL");
    await once(server, "exit");
  }

  /** What a step trains on follows from its number, so that doing a step again is doing the same. */
  function batchOf(step: number): Datum[] {
    return [0, 1].map((index) => {
      const line = `${(step * 7 + index) % 20} sheep jumped over the fence\n`;
      return datumFromAnswer([], tokenizer.encode(line)); // no prompt: the whole line is trained on
    });
  }

  /** The whole run; `beforeStep` may do something terrible. */
  async function train(log: RunLog, beforeStep: (step: number) => void, onEvent: (event: RunEvent) => void) {
    const { checkpoint, restores } = await runWithRecovery({
      service: () => new ServiceClient({ baseURL }),
      start: (service) => service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1 }),
      step: (training, step) => {
        beforeStep(step);
        const pass = training.forwardBackward(batchOf(step), "cross_entropy");
        training.optimStep({ learningRate: 1e-3 });
        return { loss: pass.map(({ metrics }) => metrics["loss:sum"]) };
      },
      steps,
      checkpointEvery: 10,
      policy: { backoffMs: 200 },
      log,
      onEvent,
    });
    return { restores, tensors: await tensorsOf(checkpoint) };
  }

  async function tensorsOf({ statePath }: RunCheckpoint) {
    await using service = new ServiceClient({ baseURL });
    const downloaded = await downloadCheckpoint(service.createRestClient(), statePath, { outputDir: folder });
    return (await readAdapter(downloaded.folder)).tensors;
  }

  await startServer();
  await using log = await RunLog.open(join(folder, "disturbed"), { config: { baseModel, steps } });
  const kills = [...killedAt];
  let restart: Promise<void> | undefined;
  const disturbed = await train(
    log,
    (step) => {
      if (step !== kills[0]) return;
      kills.shift();
      console.log(`  step ${step}: the server is killed`);
      restart = killServer().then(startServer);
    },
    (event) => {
      if (event.type === "checkpoint") console.log(`  saved ${event.checkpoint.name}`);
      if (event.type === "failed") console.log(`  step ${event.step} failed (${event.reason})`);
      if (event.type === "restored") console.log(`  restored: goes on at step ${event.checkpoint.batch}`);
    },
  );
  await restart;
  const metrics = await log.readMetrics();
  const [first, last] = [metrics[0]!["loss"] as number, metrics.at(-1)!["loss"] as number];
  console.log(
    `${steps} steps with ${disturbed.restores} restores: loss from ${first.toFixed(1)} to ${last.toFixed(1)}.`,
  );

  await using otherLog = await RunLog.open(join(folder, "undisturbed"), { config: { baseModel, steps } });
  const undisturbed = await train(
    otherLog,
    () => {},
    () => {},
  );
  await killServer();
  await rm(folder, { recursive: true });

  assert.equal(disturbed.restores, killedAt.length);
  assert.deepEqual(
    metrics.map(({ step }) => step),
    Array.from({ length: steps }, (_, step) => step),
  );
  assert.ok(last < first / 2, "the loss did not fall");
  assert.deepEqual(disturbed.tensors, undisturbed.tensors, "the weights differ");
  console.log("The same weights as those of an undisturbed run, bit for bit.");
}

const [mode, dataDir, port] = process.argv.slice(2);
await (mode === "serve" ? serve(dataDir!, port!) : main());
