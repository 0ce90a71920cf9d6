// npm run faults [-- --seeds 50 --kills 50 --training-seeds 20 --gateway-seeds 20 --requests 20000 --attacks 500 --from 1 --steps 300 --samples 1000 --report]
// What the client and the backend survive: a disturbed network, kill -9 and bad disks, hostile input, and attacks that would
// exhaust the server for its other customers. Without any of the six numbers everything runs in full; with some of them,
// only what they name. The last line is JSON.
import { parseArgs } from "node:util";
import { crashesReport, runCrashes } from "../test/faults/crashes/run.mjs";
import { gatewayReport, runGateway } from "../test/faults/gateway/run.mjs";
import { besideReport, runBeside } from "../test/faults/hostile/beside.mjs";
import { hostileReport, runHostile } from "../test/faults/hostile/run.mjs";
import { networkReport, runNetwork } from "../test/faults/network/run.mjs";
import { runTraining, trainingReport } from "../test/faults/training/run.mjs";
import { writeProofSection } from "./proof-section.mjs";

const FULL = {
  seeds: 50,
  kills: 50,
  "training-seeds": 20,
  "gateway-seeds": 20,
  requests: 20_000,
  attacks: 500,
};
const options = Object.fromEntries(
  [...Object.keys(FULL), "from", "steps", "samples"].map((name) => [name, { type: "string" }]),
);
const { values } = parseArgs({ options: { ...options, report: { type: "boolean", default: false } } });
const isChosen = Object.keys(FULL).some((name) => values[name] !== undefined);
const amount = (name) => number(name, isChosen ? 0 : FULL[name], 0);
const from = number("from", 1, 0);
const log = (line) => console.log(line);

const results = {};
if (amount("seeds") > 0) {
  log(`A disturbed network: seeds ${from} to ${from + amount("seeds") - 1}`);
  const sizes = { steps: number("steps", 300, 3), samples: number("samples", 1000, 4) };
  await run("network", () => runNetwork({ from, seeds: amount("seeds"), ...sizes, log }), networkReport);
}
if (amount("kills") > 0) {
  log(`\nA killed backend: ${amount("kills")} times`);
  await run("crashes", () => runCrashes({ from, kills: amount("kills"), log }), crashesReport);
}
if (amount("training-seeds") > 0) {
  const seeds = amount("training-seeds");
  log(`\nTraining whose process and server are killed: ${seeds} runs of each kind`);
  await run("training", () => runTraining({ from, seeds, log }), trainingReport);
}
if (amount("gateway-seeds") > 0) {
  const seeds = amount("gateway-seeds");
  log(`\nAgents at a gateway, killed with it and its server: ${seeds} runs`);
  await run("gateway", () => runGateway({ from, seeds, log }), gatewayReport);
}
if (amount("requests") > 0) {
  log(`\nHostile input: ${amount("requests")} requests`);
  await run("hostile", () => runHostile({ seed: from, requests: amount("requests"), log }), hostileReport);
}
if (amount("attacks") > 0) {
  log(`\nHostile input beside a neighbour: ${amount("attacks")} requests of each attack`);
  const suite = async () => {
    const attacks = await runBeside({ seed: from, count: amount("attacks"), log });
    return { attacks, differences: attacks.flatMap(({ differences }) => differences) };
  };
  await run("attacks", suite, ({ attacks }) => besideReport(attacks));
}

const { network, crashes } = results;
const differences = Object.values(results).flatMap((result) => result.differences);
const summary = {
  runs: network?.runs ?? 0,
  steps: network?.steps ?? 0,
  samples: network?.samples ?? 0,
  faults: network?.faults ?? {},
  kills: crashes?.kills ?? {},
  trainingKills: results.training?.kills ?? {},
  gatewayKills: results.gateway?.kills ?? {},
  requests: results.hostile?.requests ?? 0,
  attacks: Object.fromEntries(
    (results.attacks?.attacks ?? []).map(({ attack, requests }) => [attack, requests]),
  ),
  differences,
};
console.log(`\n${JSON.stringify(summary)}`);
process.exitCode = differences.length === 0 ? 0 : 1;

async function run(name, suite, report) {
  results[name] = await suite();
  if (values.report) writeProofSection(name, report(results[name]));
}

function number(name, fallback, least) {
  if (values[name] === undefined) return fallback;
  const value = Number(values[name]);
  if (Number.isInteger(value) && value >= least) return value;
  throw new Error(
    `--${name} must be a whole number of ${least} or more, got ${JSON.stringify(values[name])}`,
  );
}
