// How long /healthz of the built-in backend takes while its engine trains flat out, asked from a process that does nothing
// else; and, in the same run, how long a bare Node server takes that has nothing to do, on the same busy machine.
// Needs a build: npm run build. Bar: 50 ms at the 99th percentile; on a machine so busy that even the bare server needs
// more, one and a half times what that needed.
import { fork } from "node:child_process";
import { once } from "node:events";
import { Agent, createServer, get } from "node:http";
import { availableParallelism } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { sized } from "./shared/sized.mjs";

const SECONDS = sized(20, 1);
const PAUSE_MS = 5;
const BAR_MS = 50;
const CROWDED = 1.5;

const roles = { backend, bare, ask, train };
const role = process.argv[2];
if (role !== undefined) await roles[role](...process.argv.slice(3));
else await measure();

/** The backend in a process of its own; says at the end how long its event loop was held up. */
async function backend() {
  const { startLocalBackend } = await import("tinkerts/local");
  const running = await startLocalBackend({});
  const delays = monitorEventLoopDelay({ resolution: 5 });
  process.on("message", (message) => {
    if (message === "measure") return delays.enable();
    if (message !== "delays") return process.exit(0);
    delays.disable();
    const ms = (nanoseconds) => Number((nanoseconds / 1e6).toFixed(1));
    process.send({ loopP99Ms: ms(delays.percentile(99)), loopMaxMs: ms(delays.max) });
  });
  process.send({ baseURL: running.baseURL, apiKey: running.apiKey });
}

async function bare() {
  const server = createServer((_request, response) => {
    response.setHeader("content-type", "application/json");
    response.end('{"status":"ok"}');
  });
  server.listen(0, "127.0.0.1", () => process.send({ baseURL: `http://127.0.0.1:${server.address().port}` }));
}

/** Asks both servers in turn, one request at a time. */
async function ask(...urls) {
  const agent = new Agent({ keepAlive: true });
  const times = urls.map(() => []);
  const timed = (url) =>
    new Promise((resolve, reject) => {
      const began = performance.now();
      get(url, { agent }, (response) => {
        response.resume().on("end", () => resolve(performance.now() - began));
      }).on("error", reject);
    });
  for (const url of urls) for (let index = 0; index < 20; index += 1) await timed(url);
  const end = performance.now() + SECONDS * 1000;
  while (performance.now() < end) {
    for (const [index, url] of urls.entries()) {
      times[index].push(await timed(url));
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
  process.send(times, () => process.exit(0));
}

/** Keeps the engine's queue full: large batches, a step and a new sampler behind each, and samples all along. */
async function train(address) {
  const { ServiceClient } = await import("tinkerts");
  const service = new ServiceClient({ ...JSON.parse(address), logLevel: "off" });
  const training = await service.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 32, seed: 1 });
  const tokens = Array.from({ length: 256 }, (_, index) => 10 + (index % 300));
  const datum = { modelInput: tokens, lossFnInputs: { targetTokens: tokens, weights: tokens.map(() => 1) } };
  const batch = Array(16).fill(datum);
  let steps = 0;
  let stopped = false;
  process.on("message", () => {
    stopped = true;
  });
  process.send("ready");
  const loop = async () => {
    while (!stopped) {
      const pass = training.forwardBackward(batch, "cross_entropy");
      const next = training.forwardBackward(batch, "cross_entropy");
      await Promise.all([pass, next, training.optimStep({ learningRate: 1e-5 })]);
      steps += 2;
    }
  };
  const save = async () => {
    while (!stopped) {
      const sampler = await training.saveWeightsAndGetSamplingClient();
      await sampler.sample({ prompt: tokens.slice(0, 32), numSamples: 8, samplingParams: { maxTokens: 16 } });
      await training.saveState(`s${steps}-${Math.round(performance.now())}`, { ttlSeconds: 5 });
    }
  };
  await Promise.race([
    Promise.all([loop(), save()]),
    new Promise((resolve) => setInterval(() => stopped && resolve(), 50)),
  ]);
  process.send({ passes: steps, tokens: steps * 16 * 256 }, () => process.exit(0));
}

async function measure() {
  const start = (name, ...rest) => fork(fileURLToPath(import.meta.url), [name, ...rest]);
  const answer = async (child) => (await once(child, "message"))[0];
  const server = start("backend");
  const address = await answer(server);
  const idle = start("bare");
  const bareUrl = (await answer(idle)).baseURL;
  const trainer = start("train", JSON.stringify(address));
  await answer(trainer);
  server.send("measure");
  const [busy, alone] = await answer(start("ask", `${address.baseURL}/healthz`, bareUrl));
  server.send("delays");
  const loop = await answer(server);
  trainer.send("stop");
  const work = await answer(trainer);
  for (const child of [server, idle]) child.kill("SIGKILL");
  const backendTimes = summary(busy);
  const bareTimes = summary(alone);
  console.log(
    JSON.stringify({
      bench: "healthz",
      seconds: SECONDS,
      cores: availableParallelism(),
      ...work,
      backend: backendTimes,
      bareServer: bareTimes,
      backendEventLoop: loop,
      barMs: BAR_MS,
      pass: backendTimes.p99Ms <= Math.max(BAR_MS, CROWDED * bareTimes.p99Ms),
    }),
  );
}

function summary(times) {
  times.sort((a, b) => a - b);
  const at = (share) =>
    Number(times[Math.min(times.length - 1, Math.floor(times.length * share))].toFixed(2));
  return { requests: times.length, p50Ms: at(0.5), p90Ms: at(0.9), p99Ms: at(0.99), maxMs: at(1) };
}
