// How long `tinkerts --help` takes beside `node -e 0` and beside the Python CLI's (`tinker --help`, TINKER_CLI names it).
// The three take turns, each started as a process of its own and timed until it has ended; medians of many rounds.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { sized } from "./shared/sized.mjs";

const ROUNDS = sized(61, 1);
/** A Python start costs seconds; a few are enough to tell five times from four. */
const PYTHON_ROUNDS = sized(11, 1);
const MOST_TIMES_NODE = 1.6;
const LEAST_TIMES_FASTER = 5;

const main = fileURLToPath(new URL("../dist/bundle/cli.js", import.meta.url));
const python = process.env.TINKER_CLI ?? "tinker";

function timeMs(command, args) {
  const started = performance.now();
  const { status, error } = spawnSync(command, args, { stdio: "ignore" });
  if (error !== undefined || status !== 0)
    throw error ?? new Error(`${command} ${args.join(" ")} ended with ${status}`);
  return performance.now() - started;
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const hasPython = spawnSync(python, ["--help"], { stdio: "ignore" }).status === 0;

const times = { node: [], tinkerts: [], python: [] };
timeMs(process.execPath, [main, "--help"]);
for (let round = 0; round < ROUNDS; round += 1) {
  times.node.push(timeMs(process.execPath, ["-e", "0"]));
  times.tinkerts.push(timeMs(process.execPath, [main, "--help"]));
  if (hasPython && round < PYTHON_ROUNDS) times.python.push(timeMs(python, ["--help"]));
}

const [nodeMs, tinkertsMs] = [median(times.node), median(times.tinkerts)];
// Against the Python CLI only the rounds they took turns in.
const pythonMs = hasPython ? median(times.python) : null;
const besidePythonMs = median(times.tinkerts.slice(0, PYTHON_ROUNDS));
const timesNode = tinkertsMs / nodeMs;
const timesFaster = pythonMs === null ? null : pythonMs / besidePythonMs;
console.log(`node -e 0        ${nodeMs.toFixed(0)} ms`);
console.log(
  `tinkerts --help  ${tinkertsMs.toFixed(0)} ms, ${timesNode.toFixed(2)} times node (at most ${MOST_TIMES_NODE})`,
);
if (pythonMs === null) console.log(`no Python CLI here: ${python} --help does not run; TINKER_CLI names one`);
else
  console.log(
    `tinker --help    ${pythonMs.toFixed(0)} ms, tinkerts is ${timesFaster.toFixed(1)} times faster (at least ${LEAST_TIMES_FASTER})`,
  );
console.log(
  JSON.stringify({
    bench: "cli-help",
    rounds: ROUNDS,
    nodeMs,
    tinkertsMs,
    pythonMs,
    timesNode,
    timesFaster,
    all: Object.fromEntries(Object.entries(times).map(([name, values]) => [name, values.map(Math.round)])),
    pass:
      timesNode > MOST_TIMES_NODE ? false : timesFaster === null ? null : timesFaster >= LEAST_TIMES_FASTER,
  }),
);
