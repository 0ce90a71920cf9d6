// kill -9 at random moments of training and saving, then a restart on what is left.
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { checkpointFolder, checkpointHash } from "../shared/checkpoint-files.mjs";
import { between, randomFor } from "../shared/random.mjs";
import { ServerProcess } from "./server-process.mjs";
import { Acknowledged, connect, newModel, trainAndSave, trainStep } from "./trainer.mjs";
import { verify } from "./verify.mjs";

const STEPS = 24;

/** The hashes of all states a run can be saved in, from an undisturbed one. */
export async function expectedHashes(folder, modelFolder) {
  const dataDir = join(folder, "expected");
  const server = await new ServerProcess({ dataDir, modelFolder }).started;
  const service = connect(server.baseURL);
  const training = await newModel(service);
  const hashes = { weights: [], sampler_weights: [] };
  for (let step = 0; step < STEPS; step += 1) {
    await trainStep(training, step);
    const state = await training.saveState(`step-${step}`);
    const weights = await training.saveWeightsForSampler(`step-${step}`);
    hashes.weights.push(checkpointHash(dataDir, state.path));
    hashes.sampler_weights.push(checkpointHash(dataDir, weights.path));
  }
  await service.close();
  await server.stop();
  return hashes;
}

/** `{ kills by moment, restarts, acknowledged, unacknowledgedButWhole, differences }`. */
export async function runKills({ from, kills, folder, modelFolder, expected, log }) {
  const dataDir = join(folder, "killed");
  const acknowledged = new Acknowledged();
  const result = {
    kills: { starting: 0, training: 0, saving: 0 },
    restarts: 0,
    checkpoints: 0,
    unacknowledged: 0,
    differences: [],
  };
  const count = () => Object.values(result.kills).reduce((sum, each) => sum + each, 0);
  for (let round = from; count() < kills; round += 1) {
    const random = randomFor(round, "kill");
    const before = result.differences.length;
    const moment = await killAtSomeMoment(round, random);
    result.kills[moment] += 1;
    const found = result.differences.slice(before);
    log(
      `kill ${count()}: while ${moment}, ${acknowledged.saved.size} checkpoints acknowledged: ${found.length === 0 ? "all whole" : found.join("; ")}`,
    );
  }
  const server = await new ServerProcess({ dataDir, modelFolder }).started;
  await look(server, randomFor(from, "end"), 5);
  await server.stop();
  result.checkpoints = acknowledged.saved.size;
  return result;

  async function look(server, random, loads) {
    result.restarts += 1;
    const service = connect(server.baseURL);
    try {
      const { wrong, listed } = await verify(service, { dataDir, acknowledged, expected, random, loads });
      for (const text of wrong) result.differences.push(`kill ${count()}: ${text}`);
      // Saved just before the kill, and never heard of: theirs from now on.
      result.unacknowledged += listed.filter((path) => !acknowledged.saved.has(path)).length;
      for (const path of acknowledged.doubtful) if (!listed.includes(path)) acknowledged.saved.delete(path);
      acknowledged.doubtful.clear();
    } finally {
      await service.close();
    }
  }

  async function killAtSomeMoment(round, random) {
    const server = new ServerProcess({ dataDir, modelFolder });
    if (random() < 0.15) {
      await sleep(between(random, 0, 1_500));
      await server.kill();
      return "starting";
    }
    await server.started;
    await look(server, random, 1);
    const whileSaving = random() < 0.7;
    const atStep = Math.floor(between(random, 1, STEPS));
    const delayMs = between(random, 0, whileSaving ? 6 : 60);
    const service = connect(server.baseURL);
    let killed;
    const killSoon = (step, modelId) => {
      if (step !== atStep) return;
      killed = (whileSaving ? writing(dataDir, modelId) : Promise.resolve())
        .then(() => sleep(delayMs))
        .then(() => server.kill())
        // The client would wait for the server's return.
        .then(() => service.close());
    };
    const hooks = whileSaving ? { onSave: killSoon } : { onStep: killSoon };
    try {
      await trainAndSave(service, { steps: STEPS, random, acknowledged, ...hooks });
    } catch (error) {
      if (killed === undefined) result.differences.push(`round ${round}: ${error.stack ?? error}`);
    }
    await (killed ?? server.kill().then(() => service.close()));
    return whileSaving ? "saving" : "training";
  }
}

/** Resolves when files of a model's checkpoint are being written, or when that is over. */
async function writing(dataDir, modelId) {
  const folders = ["weights", "sampler_weights"].map((kind) =>
    dirname(checkpointFolder(dataDir, `tinker://${modelId}/${kind}/-`)),
  );
  const names = () => folders.map((folder) => (existsSync(folder) ? readdirSync(folder).join() : "")).join();
  const before = names();
  for (const deadline = performance.now() + 500; names() === before && performance.now() < deadline; ) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
