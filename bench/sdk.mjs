// tinkerts beside the official Python SDK: the same workloads against the same stub server, which runs in a process of
// its own. TINKERTS_PYTHON names a Python that has the tinker package; without it there is no peer and `pass` is null.
// Beside them the limit: undici alone and bare sockets moving the same bytes. Rounds alternate, the best of each counts.
// Bars, for each workload: 3 times the throughput, a third of the CPU time, half the memory.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { installedBytes } from "./sdk/installed-size.mjs";
import { sampledTokens, WARM_UP_ROUNDS, workloads } from "./sdk/workload.mjs";
import { sized } from "./shared/sized.mjs";

const ROUNDS = sized(3, 1);
const python = process.env.TINKERTS_PYTHON;
const file = (name) => fileURLToPath(new URL(`sdk/${name}`, import.meta.url));

const stub = spawn(process.execPath, [file("stub.mjs")], { stdio: ["ignore", "pipe", "inherit"] });
const [address] = await once(stub.stdout, "data");
const env = {
  ...process.env,
  TINKER_BASE_URL: String(address).trim(),
  TINKER_TELEMETRY: "0",
  TINKER_API_KEY: "tml-bench",
};

function run(command, args) {
  const start = performance.now();
  const { status, stdout, stderr } = spawnSync(command, args, { env, encoding: "utf8" });
  const wallSeconds = (performance.now() - start) / 1000;
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed:\n${stderr}`);
  const {
    seconds = wallSeconds,
    processCpuSeconds,
    cpuSeconds = processCpuSeconds,
    peakMegabytes,
  } = JSON.parse(stdout);
  return { seconds, cpuSeconds, peakMegabytes };
}

const best = (runs) =>
  Object.fromEntries(
    Object.keys(runs[0]).map((key) => [key, Math.min(...runs.map((figures) => figures[key] ?? Number.NaN))]),
  );
const round = (value) => (Number.isFinite(value) ? Number(value.toPrecision(3)) : null);
const rounded = (figures) =>
  figures && Object.fromEntries(Object.entries(figures).map(([key, value]) => [key, round(value)]));

const results = [];
for (const [name, workload] of Object.entries(workloads)) {
  const argument = JSON.stringify({ ...workload, sampledTokens, warmUpRounds: WARM_UP_ROUNDS });
  const runs = { tinkerts: [], python: [], undici: [], loopback: [] };
  for (let index = 0; index < ROUNDS; index += 1) {
    runs.tinkerts.push(run(process.execPath, [file("client.mjs"), argument]));
    if (python) runs.python.push(run(python, [file("client.py"), argument]));
    if (workload.kind !== "first")
      runs.undici.push(run(process.execPath, [file("raw.mjs"), "undici", argument]));
    if (workload.kind === "pass")
      runs.loopback.push(run(process.execPath, [file("raw.mjs"), "loopback", argument]));
  }
  const figures = Object.fromEntries(
    Object.entries(runs).map(([side, list]) => [side, list[0] && best(list)]),
  );
  const { tinkerts, python: peer, undici, loopback } = figures;
  const result = {
    workload: name,
    tinkerts: rounded(tinkerts),
    python: rounded(peer) ?? null,
    undiciSeconds: round(undici?.seconds),
    loopbackSeconds: round(loopback?.seconds),
    throughputRatio: round(peer && peer.seconds / tinkerts.seconds),
    cpuRatio: round(peer && tinkerts.cpuSeconds / peer.cpuSeconds),
    memoryRatio: round(peer && tinkerts.peakMegabytes / peer.peakMegabytes),
  };
  console.error(JSON.stringify(result));
  results.push(result);
}
stub.kill();

const [ours, theirs] = [installedBytes.ofTinkerts(), python ? installedBytes.ofPython(python) : undefined];
const empty = {
  nodeMegabytes: run(process.execPath, [file("empty.mjs")]).peakMegabytes,
  pythonMegabytes: python && run(python, [file("empty.py")]).peakMegabytes,
};
const bars = {
  "3 times the throughput": results.every(({ throughputRatio }) => throughputRatio >= 3),
  "a third of the CPU time": results.every(({ cpuRatio }) => cpuRatio <= 1 / 3),
  "half the memory": results.every(({ memoryRatio }) => memoryRatio <= 1 / 2),
};
console.log(
  JSON.stringify({
    bench: "sdk",
    results,
    installedMegabytes: { tinkerts: round(ours / 1e6), python: round(theirs / 1e6) },
    emptyProcess: rounded(empty),
    bars: python ? bars : null,
    pass: python ? Object.values(bars).every(Boolean) : null,
  }),
);
