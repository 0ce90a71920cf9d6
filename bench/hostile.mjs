// Hostile input beside a neighbour: 500 requests of each attack that are made to exhaust the built-in backend (JSON schemas
// and others, see test/faults/hostile/attacks.mjs), while another customer draws 8 tokens again and again and /healthz is
// asked all the time. Bars, on a machine that does nothing else: /healthz never over 250 ms, the neighbour's sample never
// over 2 s; on any machine: the server's thread never busy for 250 ms of CPU time in a row (measured on Linux), memory at its
// peak under 1.5 times that of ordinary requests; nothing dies, and every answer is right or a refusal in a sentence.
// Needs a build: npm run build. `--count 20` for a short run, `--only schemas`, `--seed 2`.
import { availableParallelism, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { runBeside } from "../test/faults/hostile/beside.mjs";
import { sized } from "./shared/sized.mjs";

const HEALTHZ_BAR_MS = 250;
const SAMPLE_BAR_MS = 2000;
const MEMORY_BAR = 1.5;

const { values } = parseArgs({
  options: {
    count: { type: "string", default: sized("500", "5") },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
  },
});
const loadBefore = loadavg()[0];
// Beside other work times say nothing: they are shown, and held to no bar.
const isIdle = loadBefore < availableParallelism() / 2;
const withinTime = (isMet) => (isIdle ? isMet : null);
const attacks = await runBeside({
  count: Number(values.count),
  seed: Number(values.seed),
  only: values.only,
  log: (line) => console.error(line),
});
const bars = Object.fromEntries(
  attacks.flatMap(({ attack, healthzMaxMs, stretchMaxMs, sampleMaxMs, peakRatio, differences }) => [
    [`${attack}: /healthz never over ${HEALTHZ_BAR_MS} ms`, withinTime(healthzMaxMs <= HEALTHZ_BAR_MS)],
    [
      `${attack}: the server's thread never busy for ${HEALTHZ_BAR_MS} ms in a row`,
      stretchMaxMs === null ? null : stretchMaxMs <= HEALTHZ_BAR_MS,
    ],
    [
      `${attack}: the neighbour's sample never over ${SAMPLE_BAR_MS} ms`,
      withinTime(sampleMaxMs <= SAMPLE_BAR_MS),
    ],
    [`${attack}: memory under ${MEMORY_BAR} times`, peakRatio < MEMORY_BAR],
    [`${attack}: nothing dies, every answer is right or a refusal`, differences.length === 0],
  ]),
);
console.log(
  JSON.stringify({
    bench: "hostile",
    cores: availableParallelism(),
    loadBefore: Number(loadBefore.toFixed(1)),
    attacks: attacks.map(({ byKind: _, byStatus: __, ...figures }) => figures),
    bars,
    pass: Object.values(bars).every((isMet) => isMet !== false),
  }),
);
