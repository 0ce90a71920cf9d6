// `npm run recipes` runs every recipe with the built-in model; `npm run recipes -- addition dpo-sums` runs some. A recipe
// fails below its bar, and when one of its runs warns: what is shipped as an example has nothing to warn of.
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** What hangs is ended; on two idle cores each takes less than three minutes. */
const LIMIT_MS = 900_000;
const command = fileURLToPath(new URL("../dist/bundle/cli.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "tinkerts-recipes-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

/** The built-in backend and model, whatever key or server this machine has. */
const { TINKER_API_KEY: _key, TINKER_BASE_URL: _server, ...env } = process.env;
env.HOME = folder;

function tinkerts(args, isShown) {
  const child = spawn(process.execPath, [command, ...args, "--json"], {
    cwd: folder,
    env,
    stdio: ["ignore", "pipe", isShown ? "inherit" : "pipe"],
    timeout: LIMIT_MS,
    killSignal: "SIGKILL",
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) {
    child[name]?.setEncoding("utf8").on("data", (text) => {
      output[name] += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, ...output }));
  });
}

/** The lines of each `warnings.jsonl` below a folder, with the folder of their run. */
function warningsBelow(runs) {
  return readdirSync(runs, { recursive: true })
    .filter((file) => basename(file) === "warnings.jsonl")
    .flatMap((file) =>
      readFileSync(join(runs, file), "utf8")
        .trim()
        .split("\n")
        .map((line) => `${dirname(file)}: ${line}`),
    );
}

const known = JSON.parse((await tinkerts(["recipe"])).stdout).map(({ name }) => name);
const named = process.argv.slice(2);
const unknown = named.filter((name) => !known.includes(name));
if (unknown.length > 0) {
  console.error(`There is no recipe ${unknown.join(", ")}. The recipes are: ${known.join(", ")}`);
  process.exit(2);
}

const shown = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(3));
const wanted = (limit) => ("atLeast" in limit ? `>= ${limit.atLeast}` : `<= ${limit.atMost}`);
let failed = 0;
for (const name of named.length > 0 ? named : known) {
  const started = performance.now();
  const runs = join(folder, name);
  const { code, stdout, stderr } = await tinkerts(["recipe", name, "--folder", runs], process.stderr.isTTY);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const warnings = warningsBelow(runs);
  const hasPassed = code === 0 && warnings.length === 0;
  console.log(`${hasPassed ? "pass" : "FAIL"}  ${name.padEnd(20)} ${seconds.padStart(6)} s`);
  if (stdout !== "") {
    const {
      bar,
      name: _,
      seconds: _seconds,
      missed: _missed,
      samplerPath: _path,
      ...results
    } = JSON.parse(stdout);
    for (const [key, value] of Object.entries(results)) {
      const limit = bar[key];
      console.log(
        `        ${key.padEnd(20)} ${shown(value).padStart(6)}  ${limit ? wanted(limit) : ""}`.trimEnd(),
      );
    }
  }
  for (const warning of warnings) console.log(`        warned  ${warning}`);
  if (code !== 0) console.log(stderr.replaceAll(/^/gm, "      | "));
  if (!hasPassed) failed += 1;
  rmSync(runs, { recursive: true, force: true });
}
console.log(failed === 0 ? "\nall passed" : `\n${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
