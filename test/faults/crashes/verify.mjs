// What a server shows after a restart, beside what was acknowledged before.
import { readdirSync } from "node:fs";
import { dirname } from "node:path";
import { checkpointFolder, checkpointHash } from "../shared/checkpoint-files.mjs";
import { oneOf } from "../shared/random.mjs";

/** Every checkpoint that the server lists, by path. */
export async function listedPaths(service) {
  const paths = [];
  for await (const checkpoint of service.createRestClient().listUserCheckpoints())
    paths.push(checkpoint.tinkerPath);
  return paths;
}

/** `expected`: hashes by step, of states and of sampler weights. Returns sentences about what is wrong. */
export async function verify(service, { dataDir, acknowledged, expected, random, loads }) {
  const wrong = [];
  const listed = await listedPaths(service);
  const steps = new Map();
  for (const path of listed) {
    const hash = checkpointHash(dataDir, path);
    const step = expected[kindOf(path)].indexOf(hash);
    if (step < 0) wrong.push(`${path} is listed, but damaged or not whole`);
    else steps.set(path, step);
    const strays = readdirSync(dirname(checkpointFolder(dataDir, path))).filter((name) =>
      name.startsWith("."),
    );
    if (strays.length > 0) wrong.push(`beside ${path} lies what a crash left behind: ${strays}`);
    if (acknowledged.deleted.has(path)) wrong.push(`${path} was deleted, but is listed`);
  }
  for (const [path, step] of acknowledged.saved) {
    const found = steps.get(path);
    if (found === undefined) {
      if (!acknowledged.doubtful.has(path)) wrong.push(`${path} was acknowledged, but is lost`);
    } else if (acknowledged.replaceable.has(path) ? found < step : found !== step) {
      wrong.push(`${path} was acknowledged with step ${step}, but holds step ${found}`);
    }
  }
  for (let load = 0; load < loads && steps.size > 0; load += 1) {
    const path = oneOf(random, [...steps.keys()]);
    wrong.push(...(await loadWhole(service, path, expected[kindOf(path)][steps.get(path)], dataDir)));
  }
  return { wrong, listed };
}

const kindOf = (path) => path.split("/")[3];

/** Loads a checkpoint, and saves what was loaded: the same bits must come out. */
async function loadWhole(service, path, hash, dataDir) {
  if (kindOf(path) === "sampler_weights") {
    const sampler = await service.createSamplingClient({ modelPath: path });
    const { sequences } = await sampler.sample({ prompt: [1, 2], samplingParams: { maxTokens: 2, seed: 1 } });
    return sequences[0].tokens.length === 2 ? [] : [`${path} cannot be sampled from`];
  }
  const training = await service.createTrainingClientFromStateWithOptimizer(path);
  const copy = await training.saveState("copy");
  const wrong = checkpointHash(dataDir, copy.path) === hash ? [] : [`${path} loads as something else`];
  await service.createRestClient().deleteCheckpoint(copy.path);
  await training.unloadModel();
  return wrong;
}
