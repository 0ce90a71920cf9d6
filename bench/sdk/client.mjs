// One workload through tinkerts: `node client.mjs '{"kind": ...}'` with TINKER_BASE_URL set. Prints seconds, CPU and memory.
import { readFileSync } from "node:fs";
import { ServiceClient } from "tinkerts";
import { sampledTokens, tokenAt, WARM_UP_ROUNDS } from "./workload.mjs";

const { kind, datums, length, rounds, samples, promptLength } = JSON.parse(process.argv[2]);
const service = new ServiceClient({ apiKey: "tml-bench" });

async function passes() {
  const training = await service.createLoraTrainingClient({ baseModel: "stub/model", rank: 32 });
  const rows = Array.from({ length: datums }, (_, row) => ({
    tokens: Int32Array.from({ length }, (_, index) => tokenAt(row + index)),
    targets: Int32Array.from({ length }, (_, index) => tokenAt(row + index + 1)),
    weights: new Float32Array(length).fill(1),
  }));
  const round = async () => {
    const data = rows.map(({ tokens, targets, weights }) => ({
      modelInput: tokens,
      lossFnInputs: { targetTokens: targets, weights },
    }));
    const { metrics } = await training.forwardBackward(data, "cross_entropy");
    if (!(metrics["loss:sum"] > 0)) throw new Error("no loss came back");
  };
  for (let index = 0; index < WARM_UP_ROUNDS; index += 1) await round();
  return measured(async () => {
    for (let index = 0; index < rounds; index += 1) await round();
  });
}

async function sampling() {
  const sampler = await service.createSamplingClient({ baseModel: "stub/model" });
  const prompt = Int32Array.from({ length: promptLength }, (_, index) => tokenAt(index));
  const one = async () => {
    const { sequences } = await sampler.sample({ prompt, samplingParams: { maxTokens: sampledTokens } });
    if (sequences[0].tokens.length !== sampledTokens) throw new Error("tokens are missing");
  };
  await one();
  if (kind === "first") return {};
  return measured(async () => {
    for (let index = 0; index < rounds; index += 1) await Promise.all(Array.from({ length: samples }, one));
  });
}

async function measured(work) {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  return { seconds, cpuSeconds: (user + system) / 1e6 };
}

const figures = kind === "pass" ? await passes() : await sampling();
const peakKilobytes = Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);
const total = process.cpuUsage();
console.log(
  JSON.stringify({
    ...figures,
    peakMegabytes: peakKilobytes / 1024,
    processCpuSeconds: (total.user + total.system) / 1e6,
  }),
);
await service.close();
