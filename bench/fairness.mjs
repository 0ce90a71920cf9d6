// A short sample (8 tokens) beside each kind of backlog in the built-in backend, each in a process of its own: how long it
// takes, and what the backlog gets done beside the same backlog alone. Needs a build: npm run build.
// Bars: beside any backlog 2 s at the 99th percentile, and nine tenths of the backlog's throughput. Both are counted in the
// server's processor time, which other programs on the machine change less than the time of day: a backlog keeps more than
// one core busy, so that on a quiet machine the clock shows less. The wall-clock time is reported, too.
// Two minutes on two quiet cores. 24 requests of 8 samples are half as many again as the engine draws at once;
// `--requests 200 --passes 100` for a long backlog.
import { fork } from "node:child_process";
import { once } from "node:events";
import { availableParallelism, loadavg } from "node:os";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { sized } from "./shared/sized.mjs";

const BASE_MODEL = "tinkerts/nano";
const WAIT_BAR_MS = 2000;
const THROUGHPUT_BAR = 0.9;
/** Between two short samples, counted from the end of one to the beginning of the next. */
const PAUSE_MS = sized(500, 10);
const SAMPLES_PER_REQUEST = 8;
const MAX_TOKENS = sized(400, 40);
const IDLE_SAMPLES = sized(20, 2);

const { values } = parseArgs({
  options: {
    requests: { type: "string", default: sized("24", "2") },
    passes: { type: "string", default: sized("10", "1") },
    server: { type: "boolean", default: false },
  },
});
const size = { requests: Number(values.requests), passes: Number(values.passes) };
if (values.server) await serve();
else await measure();

async function serve() {
  const { startLocalBackend } = await import("tinkerts/local");
  const backend = await startLocalBackend({});
  process.on("message", (message) => {
    if (message === "end") process.exit(0);
    const { user, system } = process.cpuUsage();
    process.send({ cpuMs: (user + system) / 1000 });
  });
  process.send({ baseURL: backend.baseURL, apiKey: backend.apiKey });
}

async function measure() {
  const loadBefore = loadavg()[0];
  const idle = await withBackend(async ({ open, cpuMs }) => {
    const { sampler } = await open();
    const waits = [];
    while (waits.length < IDLE_SAMPLES) waits.push(await shortSample(sampler, cpuMs));
    return waits;
  });
  const alone = (kind) => withBackend((backend) => beside(backend, kind, false));
  // Before and after, so that a machine that becomes slower or faster meanwhile does not decide.
  const sampling = [await alone("other session")];
  const backlogs = [];
  for (const kind of ["same session", "other session", "other adapter"])
    backlogs.push(await withBackend((backend) => beside(backend, kind, true)));
  sampling.push(await alone("other session"));
  const training = [await alone("training")];
  backlogs.push(await withBackend((backend) => beside(backend, "training", true)));
  training.push(await alone("training"));
  const figures = backlogs.map(({ kind, waits, perSecond, perCpuSecond, tookMs }) => {
    const alone = kind === "training" ? training : sampling;
    const ratio = (value, each) => {
      const mean = alone.reduce((sum, run) => sum + each(run), 0) / alone.length;
      return Number((value / mean).toFixed(3));
    };
    return {
      backlog: kind,
      ...summary(waits),
      waitP99Part: Number((summary(waits).waitP99Ms / tookMs).toFixed(3)),
      alonePerSecond: alone.map((run) => Math.round(run.perSecond)).join(" and "),
      besidePerSecond: Math.round(perSecond),
      throughput: ratio(perCpuSecond, (run) => run.perCpuSecond),
      throughputByTheClock: ratio(perSecond, (run) => run.perSecond),
    };
  });
  const bars = {
    [`wait below ${WAIT_BAR_MS} ms at p99 beside every backlog`]: figures.every(
      ({ waitP99CpuMs }) => waitP99CpuMs < WAIT_BAR_MS,
    ),
    [`every backlog keeps ${THROUGHPUT_BAR} of its throughput`]: figures.every(
      ({ throughput }) => throughput >= THROUGHPUT_BAR,
    ),
  };
  console.log(
    JSON.stringify({
      bench: "fairness",
      cores: availableParallelism(),
      loadBefore: Number(loadBefore.toFixed(2)),
      ...size,
      samplesPerRequest: SAMPLES_PER_REQUEST,
      maxTokens: MAX_TOKENS,
      idle: summary(idle),
      backlogs: figures,
      bars,
      pass: Object.values(bars).every(Boolean),
    }),
  );
}

/** One backlog from its beginning to its end, with or without short samples all along; tokens per second of the backlog. */
async function beside({ open, cpuMs }, kind, isBeside) {
  const busy = await open();
  const newcomer = kind === "other session" || kind === "training" ? await open() : busy;
  const sampler = kind === "other adapter" ? await busy.freshAdapter() : newcomer.sampler;
  const began = performance.now();
  const cpuBefore = await cpuMs();
  let isOver = false;
  const work = (kind === "training" ? train(busy.training) : sampleAll(busy.sampler)).then(async (tokens) => {
    isOver = true;
    const tookMs = performance.now() - began;
    const perCpuSecond = (tokens * 1000) / ((await cpuMs()) - cpuBefore);
    return { tookMs, perSecond: (tokens * 1000) / tookMs, perCpuSecond };
  });
  const waits = [];
  while (isBeside && !isOver) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    if (!isOver) waits.push(await shortSample(sampler, cpuMs));
  }
  return { kind, waits, ...(await work) };
}

async function sampleAll(sampler) {
  const all = Array.from({ length: size.requests }, async (_, seed) => {
    const prompt = Array.from({ length: 32 }, (_unused, index) => 10 + ((seed * 31 + index * 7) % 400));
    const samplingParams = { maxTokens: MAX_TOKENS, stop: [], seed };
    const { sequences } = await sampler.sample({ prompt, numSamples: SAMPLES_PER_REQUEST, samplingParams });
    return sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
  });
  return (await Promise.all(all)).reduce((sum, tokens) => sum + tokens, 0);
}

async function train(training) {
  const tokens = Array.from({ length: 256 }, (_, index) => 10 + (index % 300));
  const batch = Array(16).fill({ modelInput: tokens, lossFnInputs: { targetTokens: tokens } });
  const passes = Array.from({ length: size.passes }, () => training.forwardBackward(batch, "cross_entropy"));
  await Promise.all(passes);
  return size.passes * batch.length * tokens.length;
}

async function shortSample(sampler, cpuMs) {
  const prompt = [20, 21, 22, 23];
  const cpuBefore = await cpuMs();
  const began = performance.now();
  await sampler.sample({ prompt, samplingParams: { maxTokens: 8, stop: [] } });
  const tookMs = performance.now() - began;
  return { tookMs, cpuMs: (await cpuMs()) - cpuBefore };
}

async function withBackend(use) {
  const { ServiceClient } = await import("tinkerts");
  const child = fork(fileURLToPath(import.meta.url), ["--server"]);
  const [address] = await once(child, "message");
  const open = async () => {
    const service = new ServiceClient({ ...address, logLevel: "off" });
    const training = await service.createLoraTrainingClient({ baseModel: BASE_MODEL, rank: 8, seed: 1 });
    const freshAdapter = () => training.saveWeightsAndGetSamplingClient();
    return { training, freshAdapter, sampler: await freshAdapter() };
  };
  const cpuMs = async () => {
    child.send("cpu");
    return (await once(child, "message"))[0].cpuMs;
  };
  try {
    return await use({ open, cpuMs });
  } finally {
    child.send("end");
    await once(child, "exit");
  }
}

function summary(waits) {
  const at = (share, timeOf) => {
    const sorted = waits.map(timeOf).toSorted((a, b) => a - b);
    return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]);
  };
  const byTheClock = ({ tookMs }) => tookMs;
  return {
    samples: waits.length,
    waitP50Ms: at(0.5, byTheClock),
    waitP99Ms: at(0.99, byTheClock),
    waitP99CpuMs: at(0.99, ({ cpuMs }) => cpuMs),
  };
}
