// `npm run example -- dpo` builds the package, compiles the examples and runs one, for reading along.
// `npm run examples` runs all of them (`npm run examples -- dpo download`: some) and tells which passed.
// `npm run example -- browser` builds a page and hands it out until it is interrupted.
import { execFileSync, spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const LIMIT_MS = 180_000;
const here = fileURLToPath(new URL(".", import.meta.url));
const all = readdirSync(here)
  .filter((file) => file.endsWith(".mts"))
  .map((file) => file.slice(0, -".mts".length));
const PAGE = "browser";
const show = process.argv[2] === "--show";
const named = process.argv.slice(show ? 3 : 2);
// A page does not end by itself.
const known = show ? [...all, PAGE] : all;
const unknown = named.filter((name) => !known.includes(name));
if (unknown.length > 0 || (show && named.length !== 1)) {
  if (unknown.length > 0) console.error(`There is no example ${unknown.join(", ")}.`);
  console.error(`The examples are: ${known.join(", ")}`);
  process.exit(2);
}

const node = (...args) => execFileSync(process.execPath, args, { stdio: "inherit" });
node(join(here, "../scripts/build.mjs"));
if (named[0] === PAGE) {
  const { showSite } = await import("./browser/site.mjs");
  await showSite(join(here, "dist", PAGE));
} else {
  node(join(here, "../node_modules/typescript/bin/tsc"), "-p", here);
  await runPrograms();
}

/** Runs an example to its end; its output is shown as it comes, or kept. */
function run(name) {
  const child = spawn(process.execPath, [join(here, "dist", `${name}.mjs`)], {
    stdio: show ? "inherit" : ["ignore", "pipe", "pipe"],
    timeout: LIMIT_MS,
    killSignal: "SIGKILL",
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text) => {
      output += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      if (signal !== null) output += `ended by ${signal} (an example may take ${LIMIT_MS / 1000} s)\n`;
      resolve({ passed: code === 0, output });
    });
  });
}

async function runPrograms() {
  if (show) {
    process.exitCode = (await run(named[0])).passed ? 0 : 1;
    return;
  }
  const names = named.length > 0 ? named : all;
  let failed = 0;
  for (const name of names) {
    const started = performance.now();
    const { passed, output } = await run(name);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    console.log(`${passed ? "pass" : "FAIL"}  ${name.padEnd(20)} ${seconds.padStart(5)} s`);
    if (!passed) {
      failed += 1;
      console.log(output.replaceAll(/^/gm, "      | "));
    }
  }
  console.log(`\n${names.length - failed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}
