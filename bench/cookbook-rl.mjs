// Training by reward on the built-in backend (tinkerts/nano, in a process of its own).
//   busy      the share of a run in which the engine has work, with rewards that take their time, as judges do
//   waves     1,000 episodes of five turns at once, wave after wave: what this process and the server keep of them. A
//             random model of a few thousand weights acts, as episodes are measured and no engine
//   seconds   the same run by the Python cookbook and by ours, with the same samples, from the call to its end
// Bars: the asynchronous loop keeps the engine busy at least 95% of the time and is faster than the synchronous one; of
// later waves no more is kept than of earlier ones, but for 12 MB; the run is no slower than in Python.
// TINKERTS_PYTHON names a Python with tinker-cookbook; without it ours is measured alone.
// Needs a build: npm run build.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { RolloutPool, runRolloutGroup, samplerPolicy, trainReinforcement } from "../dist/cookbook/index.js";
import { derivedSeed } from "../dist/cookbook/rollouts/index.js";
import { ModelInput, ServiceClient } from "../dist/index.js";
import { TINY_MODEL } from "../test/faults/shared/tiny-model.mjs";
import { MeasuredServer, python, round, takeBest } from "./cookbook/peers.mjs";
import { sized } from "./shared/sized.mjs";

const MODEL = "tinkerts/nano";
const RENDERER = "qwen3_instruct";
const BUSY_BAR = 0.95;
/** Of what is kept: a kilobyte for each turn would be more. */
const MAX_GROWTH_MB = 12;
const JUDGING_MS = 100;
const TURNS = sized(2, 1);
const RUN = {
  learningRate: 1e-3,
  maxTokens: 6,
  rank: 16,
  groupsPerBatch: sized(8, 2),
  groupSize: sized(8, 4),
  steps: sized(8, 2),
};
const FIRST_TOKEN = 10;
const EPISODES = {
  atOnce: sized(1000, 16),
  groupSize: 8,
  turns: 5,
  maxTokens: 8,
  waves: sized(6, 2),
  readEveryMs: 200,
};

const folder = mkdtempSync(join(tmpdir(), "tinkerts-bench-"));
const server = await MeasuredServer.start();
const service = new ServiceClient(server.backend);
try {
  // All in turns, and the best of each: other work on the machine hits both alike.
  const [synchronous, asynchronous] = [{}, {}];
  for (let turn = 0; turn < TURNS; turn += 1) {
    takeBest(synchronous, await server.measured(() => train({ mode: "synchronous", reward: judge })));
    takeBest(asynchronous, await server.measured(() => train({ mode: "asynchronous", reward: judge })));
  }
  const peers = await againstPython();
  const waves = await episodes();
  const growthMB = {
    client: growth(waves.map(({ keptMB }) => keptMB)),
    server: growth(waves.map(({ serverKeptMB }) => serverKeptMB)),
  };
  const bars = {
    [`the asynchronous loop keeps the engine busy ${100 * BUSY_BAR}% of the time`]:
      asynchronous.busy >= BUSY_BAR,
    "the asynchronous loop is faster than the synchronous one": asynchronous.seconds < synchronous.seconds,
    [`${EPISODES.atOnce} episodes run at once`]: waves.every(({ atOnce }) => atOnce === EPISODES.atOnce),
    [`client and server keep at most ${MAX_GROWTH_MB} MB more after later waves than after earlier ones`]:
      Math.max(growthMB.client, growthMB.server) <= MAX_GROWTH_MB,
    ...(peers.python && {
      "a run takes no longer than in Python": peers.tinkerts.seconds <= peers.python.seconds,
      "the sampler has the trainer's logprobs in both": peers.tinkerts.kl === 0 && peers.python.kl === 0,
    }),
  };
  const figures = ({ busy, seconds }) => ({ busy: round(busy), seconds: round(seconds) });
  console.log(
    JSON.stringify({
      bench: "cookbook-rl",
      synchronous: figures(synchronous),
      asynchronous: figures(asynchronous),
      ...peers,
      growthMB,
      waves,
      bars,
      pass: Object.values(bars).every(Boolean),
    }),
  );
} finally {
  await service.close();
  server.close();
  rmSync(folder, { recursive: true, force: true });
}

function problem(index) {
  const [a, b] = [30 + ((index * 7) % 30), 20 + ((index * 4) % 40)];
  return { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
}

async function judge({ problem: { answer }, text }) {
  await sleep(JUDGING_MS);
  return text === answer ? 1 : 0;
}

async function train(settings) {
  const began = performance.now();
  const run = await trainReinforcement({
    service,
    model: MODEL,
    renderer: RENDERER,
    problems: problem,
    ...RUN,
    loggers: [],
    evaluateEvery: 0,
    ...settings,
  });
  return { seconds: (performance.now() - began) / 1000, kl: run.metrics["optim/kl_sample_train_v1"] };
}

/** What each wave of episodes leaves behind, and the most that this process took meanwhile. */
async function episodes() {
  const sampler = await service.createSamplingClient({ baseModel: TINY_MODEL });
  const policy = samplerPolicy(sampler, { maxTokens: EPISODES.maxTokens, temperature: 1 });
  const waves = [];
  for (let wave = 0; wave < EPISODES.waves; wave += 1) {
    waves.push(await server.measured(() => oneWave(wave, policy)));
  }
  return waves.map(({ busy, serverMemory: { keptBytes, rssBytes }, ...figures }) => ({
    ...figures,
    serverKeptMB: megabytes(keptBytes),
    serverRssMB: megabytes(rssBytes),
    busy: round(busy),
  }));
}

async function oneWave(wave, policy) {
  const { atOnce, groupSize, readEveryMs } = EPISODES;
  const pool = new RolloutPool({ maxRollouts: atOnce });
  const began = performance.now();
  let [most, peakBytes] = [0, 0];
  const read = () => {
    most = Math.max(most, pool.running);
    peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
  };
  const reading = setInterval(read, readEveryMs);
  const groups = Array.from({ length: atOnce / groupSize }, (_, group) => {
    const makeEnvironments = () => Array.from({ length: groupSize }, () => conversation(group));
    return runRolloutGroup({ makeEnvironments }, policy, { pool, seed: derivedSeed(wave, group) });
  });
  setImmediate(read);
  let turns = 0;
  for (const group of groups) for (const episode of (await group).trajectories) turns += episode.turns.length;
  groups.length = 0;
  clearInterval(reading);
  const seconds = (performance.now() - began) / 1000;
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  const kept = megabytes(heapUsed + external);
  return { atOnce: most, turns, seconds: round(seconds), keptMB: kept, peakMB: megabytes(peakBytes) };
}

/** Between the medians of both halves, as the garbage of one reading is chance. */
function growth(readings) {
  const median = (list) => list.toSorted((one, other) => one - other)[Math.floor(list.length / 2)];
  const half = readings.length / 2;
  return median(readings.slice(half)) - median(readings.slice(0, half));
}

/** Each prompt goes on from what was sampled. */
function conversation(group) {
  const read = [FIRST_TOKEN + (group % 64)];
  let turn = 0;
  const observation = () => ({ prompt: ModelInput.fromInts(read), stop: [] });
  return {
    start: async () => observation(),
    step: async ({ tokens }) => {
      turn += 1;
      read.push(...tokens, FIRST_TOKEN + turn);
      return { reward: 0, isDone: turn === EPISODES.turns, next: observation() };
    },
  };
}

async function againstPython() {
  const [ours, theirs] = [{}, {}];
  const { path } = await (
    await service.createLoraTrainingClient({ baseModel: MODEL, rank: RUN.rank, seed: 3 })
  ).saveState("start");
  const reward = ({ problem: { answer }, text }) => (text === answer ? 1 : 0);
  const same = { reward, startFrom: path, dropConstantGroups: false, save: { everySteps: RUN.steps } };
  for (let turn = 0; turn < TURNS; turn += 1) {
    const home = join(folder, `tinkerts-${turn}`);
    takeBest(ours, await train({ ...same, folder: home }));
    if (python) takeBest(theirs, pythonRun(path, join(folder, `python-${turn}`)));
  }
  const figures = ({ seconds, kl }) => ({ seconds: round(seconds), kl });
  return { tinkerts: figures(ours), python: python ? figures(theirs) : null };
}

function pythonRun(startFrom, cwd) {
  mkdirSync(cwd);
  const groups = [...Array(RUN.groupsPerBatch * RUN.steps).keys()];
  const settings = {
    ...RUN,
    renderer: RENDERER,
    loss: "importance_sampling",
    mode: "synchronous",
    minibatches: 1,
    maxStepsOffPolicy: 1,
    substeps: 1,
    saveEvery: RUN.steps,
    startFrom,
    problems: groups.map(problem),
    seeds: groups.map((group) => [...Array(RUN.groupSize).keys()].map((member) => seedOf(group, member))),
  };
  const env = { MODEL, SETTINGS: JSON.stringify(settings) };
  const script = "../../test/conformance/python/reinforcement_run.py";
  const { seconds, metrics } = server.runPython(script, [], { cwd, env });
  return { seconds, kl: metrics.at(-1)["optim/kl_sample_train_v1"] };
}

/** That of the only turn of an episode, as ours draws it. */
function seedOf(group, member) {
  return derivedSeed(derivedSeed(derivedSeed(0, group), member, 0), 0);
}

function megabytes(bytes) {
  return Math.round(bytes / 2 ** 20);
}
