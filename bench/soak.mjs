// The built-in backend in a process of its own, and 20 clients at once that together make 2,000 training steps and 5,000
// samples, with new samplers, checkpoints and sessions all along. Needs a build: npm run build.
// Bar: resident memory flat after the first 10%: its trend (the median of all slopes between two readings, so that
// no single reading decides) may not add up to more than 5% by the end. Readings are taken after a garbage collection in
// the server's thread; the engine's, whose data lie outside of the heap, collects when it sees fit.
// `node bench/soak.mjs --steps 200 --samples 500 --clients 4` for a short one; `--series` prints all readings.
import { fork } from "node:child_process";
import { once } from "node:events";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { sized } from "./shared/sized.mjs";

const MEGABYTE = 2 ** 20;
const GROWTH_BAR = 0.05;
const WARM_UP = 0.1;
const READINGS = 200;
/** Few, so that the warm-up sees sessions come and go: until the first ones end, their samplers add up. */
const STEPS_PER_SESSION = 5;

const { values } = parseArgs({
  options: {
    steps: { type: "string", default: sized("2000", "10") },
    samples: { type: "string", default: sized("5000", "20") },
    clients: { type: "string", default: sized("20", "2") },
    series: { type: "boolean", default: false },
    server: { type: "boolean", default: false },
  },
});

if (values.server) await serve();
else await soak(Number(values.steps), Number(values.samples), Number(values.clients));

// ---- the backend's process: says how much memory it has whenever it is asked

async function serve() {
  const { startLocalBackend } = await import("tinkerts/local");
  const backend = await startLocalBackend({});
  process.on("message", async (message) => {
    if (message === "close") {
      await backend.close();
      process.exit(0);
    }
    globalThis.gc();
    const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage();
    process.send({ rss, heapUsed, external, arrayBuffers });
  });
  process.send({ baseURL: backend.baseURL, apiKey: backend.apiKey });
}

// ---- the clients

async function soak(steps, samples, clients) {
  const { ServiceClient } = await import("tinkerts");
  const child = fork(fileURLToPath(import.meta.url), ["--server"], {
    // The young generation at its full size from the start: V8 takes it anyway, at an unpredictable time.
    execArgv: ["--expose-gc", "--min-semi-space-size=16"],
  });
  const [address] = await once(child, "message");
  const began = performance.now();
  const done = { steps: 0, samples: 0, sessions: 0, checkpoints: 0 };
  const readings = [];
  const read = async () => {
    child.send("memory");
    const [memory] = await once(child, "message");
    readings.push({ progress: (done.steps + done.samples) / (steps + samples), ...memory });
  };

  const share = (total, index) =>
    Math.floor(((index + 1) * total) / clients) - Math.floor((index * total) / clients);
  const client = async (index) => {
    let stepsLeft = share(steps, index);
    const mine = share(samples, index);
    const samplesPerStep = mine / Math.max(stepsLeft, 1);
    let owed = 0;
    let sampled = 0;
    while (stepsLeft > 0) {
      // A session after the other, so that what a session leaves behind shows too.
      const service = new ServiceClient({ ...address, logLevel: "off" });
      done.sessions += 1;
      const training = await service.createLoraTrainingClient({
        baseModel: "tinkerts/nano",
        rank: 8,
        seed: index,
      });
      let sampler = await training.saveWeightsAndGetSamplingClient();
      for (let step = 0; step < STEPS_PER_SESSION && stepsLeft > 0; step += 1, stepsLeft -= 1) {
        const length = 12 + ((index * 7 + step * 3) % 20);
        const tokens = Array.from({ length }, (_, at) => 10 + ((at * 31 + step * 7 + index) % 300));
        const datum = {
          modelInput: tokens,
          lossFnInputs: { targetTokens: tokens, weights: tokens.map(() => 1) },
        };
        const pass = training.forwardBackward([datum, datum], "cross_entropy");
        const update = training.optimStep({ learningRate: 1e-4 });
        owed += samplesPerStep;
        const isLast = stepsLeft === 1;
        const now = isLast ? mine - sampled : Math.floor(owed);
        owed -= now;
        sampled += now;
        await Promise.all([
          pass,
          update,
          ...Array.from({ length: now }, async (_, number) => {
            await sampler.sample({
              prompt: tokens.slice(0, 8),
              numSamples: 1,
              samplingParams: { maxTokens: 6, temperature: 1, seed: step * 100 + number },
            });
            done.samples += 1;
          }),
        ]);
        done.steps += 1;
        if (step % 2 === 1) sampler = await training.saveWeightsAndGetSamplingClient();
        if (step % 4 === 3) {
          const { path } = await training.saveState(`step-${step}`, { ttlSeconds: 60 });
          done.checkpoints += 1;
          if (done.checkpoints % 2 === 0) await service.createRestClient().deleteCheckpoint(path);
        }
      }
      await service.close();
    }
  };
  const all = Promise.all(Array.from({ length: clients }, (_, index) => client(index)));
  let finished = false;
  all
    .finally(() => {
      finished = true;
    })
    .catch(() => {});
  for (let next = 0; !finished; ) {
    const progress = (done.steps + done.samples) / (steps + samples);
    if (progress >= next / READINGS) {
      await read();
      next = Math.floor(progress * READINGS) + 1;
    } else await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await all;
  await read();
  child.send("close");
  await once(child, "exit");

  if (values.series) {
    for (const { progress, rss, heapUsed } of readings)
      console.error(progress.toFixed(3), (rss / MEGABYTE).toFixed(1), (heapUsed / MEGABYTE).toFixed(1));
  }
  const settled = readings.filter(({ progress }) => progress >= WARM_UP);
  const first = settled[0];
  const last = settled.at(-1);
  const rssGrowth = trend(settled, "rss") * (1 - WARM_UP);
  const heapGrowth = trend(settled, "heapUsed") * (1 - WARM_UP);
  const megabytes = (bytes) => Number((bytes / MEGABYTE).toFixed(2));
  console.log(
    JSON.stringify({
      bench: "soak",
      ...done,
      clients,
      seconds: Number(((performance.now() - began) / 1000).toFixed(1)),
      readings: readings.length,
      rssAfterWarmUpMb: megabytes(first.rss),
      rssEndMb: megabytes(last.rss),
      rssPeakMb: megabytes(Math.max(...readings.map(({ rss }) => rss))),
      rssTrendMb: megabytes(rssGrowth),
      heapAfterWarmUpMb: megabytes(first.heapUsed),
      heapEndMb: megabytes(last.heapUsed),
      heapTrendMb: megabytes(heapGrowth),
      buffersEndMb: megabytes(last.arrayBuffers),
      barMb: megabytes(first.rss * GROWTH_BAR),
      pass: rssGrowth <= first.rss * GROWTH_BAR,
    }),
  );
}

/** Theil-Sen: bytes over the whole run, as the median slope says. */
function trend(readings, key) {
  const slopes = [];
  for (let i = 0; i < readings.length; i += 1) {
    for (let j = i + 1; j < readings.length; j += 1) {
      const distance = readings[j].progress - readings[i].progress;
      if (distance > 0.05) slopes.push((readings[j][key] - readings[i][key]) / distance);
    }
  }
  slopes.sort((a, b) => a - b);
  return slopes[slopes.length >> 1] ?? 0;
}
