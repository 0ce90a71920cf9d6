// `npm run test:node-majors`: the tests that touch Node, on every supported major but the one that `npm test` ran on.
// Installs Node from the package registry into node_modules/.cache. `-- 24 test/cli` chooses majors and tests.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const MAJORS = ["22", "24", "26"];

/** Sockets, files, threads, child processes, the module loader; the rest of the suite is the same JavaScript everywhere. */
const TESTS = [
  ".node.test.ts",
  "test/checkpoints",
  "test/cli/auth",
  "test/cli/command-line",
  "test/cli/gateway",
  "test/cli/serve",
  "test/cli/train-rl",
  "test/cookbook/agent-training",
  "test/cookbook/reinforcement-faults",
  "test/engine/worker",
  "test/gateway",
  "test/local/bodies",
  "test/local/crash",
  "test/local/socket",
  "test/local/unwritable",
  "test/packaging/one-graph",
  "test/protocol/delivery",
  "test/runtimes/neutral",
  "test/runtimes/runtimes",
  "test/session",
  "test/tokenizers/batch",
  "test/transport",
];

const root = fileURLToPath(new URL("..", import.meta.url));
const run = (command, args) => spawnSync(command, args, { cwd: root, stdio: "inherit" }).status === 0;

/** The program of a major; throws where the registry has none for this machine. */
function install(major) {
  const name = `node-${process.platform}-${process.arch}`;
  const folder = join(root, "node_modules/.cache", `node-${major}`);
  const program = join(folder, "node_modules", name, "bin/node");
  const options = ["--prefix", folder, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"];
  if (!existsSync(program) && !run("npm", ["install", ...options, `${name}@${major}`]))
    throw new Error(`Node ${major} cannot be installed as ${name}.`);
  return program;
}

const given = process.argv.slice(2);
const isMajor = (argument) => /^\d+$/.test(argument);
const majors = given.some(isMajor) ? given.filter(isMajor) : MAJORS;
const tests = given.filter((argument) => !isMajor(argument));
const failed = [];
for (const major of majors) {
  const program = install(major);
  console.log(`\nNode ${major}`);
  const files = tests.length > 0 ? tests : TESTS;
  if (!run(program, ["node_modules/vitest/vitest.mjs", "run", ...files])) failed.push(major);
}
if (failed.length > 0) console.error(`Tests fail on Node ${failed.join(", ")}.`);
process.exitCode = failed.length === 0 ? 0 : 1;
