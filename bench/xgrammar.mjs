// Our grammars beside xgrammar's web build (the engine behind JSON output elsewhere), with the vocabulary of tinkerts/nano: the
// schemas of the faults suite that are made to exhaust a server, and schemas as people write them. Each schema is compiled
// in a process of its own, which ends after 10 seconds, and is asked for the tokens that may come first. Bars: ours ends each time,
// within 2 s and 128 MB of its own. What xgrammar needs is shown. It is installed into a temporary folder; without a network
// ours is measured alone. Needs a build: npm run build. `npm run bench -- xgrammar`.
import { execFile, execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { schemas } from "../test/faults/hostile/schemas.mjs";
import { randomFor } from "../test/faults/shared/random.mjs";
import { sized } from "./shared/sized.mjs";

const XGRAMMAR = "@mlc-ai/web-xgrammar@0.1.27";
const HOSTILE = sized(60, 2);
const ORDINARY = sized(10, 1);
const LONGEST_MS = 10_000;
const MAX_MS = 2000;
const MAX_MB = 128;

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), "bench-xgrammar-"));

/** The library in the temporary folder; undefined if it cannot be installed. */
function install() {
  try {
    const args = ["install", "--prefix", folder, "--no-audit", "--no-fund", "--no-save", XGRAMMAR];
    execFileSync("npm", args, { stdio: "ignore" });
  } catch {
    return undefined;
  }
  // A UMD file under "type": "module": as published it does not load in Node.
  const file = join(folder, "xgrammar.cjs");
  copyFileSync(join(folder, "node_modules/@mlc-ai/web-xgrammar/lib/index.js"), file);
  return file;
}

/** What compiling the schema took; `ended` says how the process ended where it did not get that far. */
async function compile(script, ...args) {
  try {
    const { stdout } = await run(process.execPath, [here(`./xgrammar/${script}`), ...args], {
      timeout: LONGEST_MS,
      killSignal: "SIGKILL",
    });
    return JSON.parse(stdout.trim().split("\n").at(-1));
  } catch (error) {
    return { ended: error.killed ? `killed after ${LONGEST_MS / 1000} s` : "died", ms: LONGEST_MS, mb: 0 };
  }
}

/** Median and extremes of what the schemas took. */
function summary(library, kind, results) {
  const times = results.map(({ ms }) => ms).sort((a, b) => a - b);
  const count = (condition) => results.filter(condition).length;
  return {
    library,
    schemas: kind,
    count: results.length,
    compiled: count(({ ok }) => ok === true),
    refused: count(({ ok, isFault }) => ok === false && !isFault),
    faults: count(({ isFault }) => isFault === true),
    notEnded: count(({ ended }) => ended !== undefined),
    medianMs: Math.round(times[times.length >> 1]),
    longestMs: Math.round(times.at(-1)),
    mostMb: Math.round(Math.max(...results.map(({ mb }) => mb))),
  };
}

try {
  const library = install();
  const world = { attacker: { samplerWeights: "model", key: "key" } };
  const made = (kind, count) =>
    Array.from({ length: count }, (_, index) => {
      const { request } = schemas[kind](randomFor("xgrammar", 1, index), world, index);
      const body = JSON.parse(request.body);
      return (body.response_format?.json_schema ?? body.output_config.format).schema;
    });
  const tokenizer = here("../models/nano/tokenizer.json");
  const { model, added_tokens } = JSON.parse(readFileSync(tokenizer, "utf8"));
  const vocabulary = [];
  for (const [text, id] of Object.entries(model.vocab)) vocabulary[id] = text;
  for (const { id, content } of added_tokens) vocabulary[id] = content;
  writeFileSync(
    join(folder, "vocabulary.json"),
    JSON.stringify(Array.from(vocabulary, (text) => text ?? "")),
  );
  const table = [];
  for (const [kind, count] of [
    ["ordinary", ORDINARY],
    ["hostile", HOSTILE],
  ]) {
    const results = { tinkerts: [], xgrammar: [] };
    for (const schema of made(kind, count)) {
      const file = join(folder, "schema.json");
      writeFileSync(file, JSON.stringify(schema));
      results.tinkerts.push(await compile("ours.mjs", file));
      if (library)
        results.xgrammar.push(await compile("theirs.mjs", file, library, join(folder, "vocabulary.json")));
    }
    for (const [name, of] of Object.entries(results)) if (of.length > 0) table.push(summary(name, kind, of));
  }
  const ours = table.filter(({ library }) => library === "tinkerts");
  const bars = {
    "ours ends each time": ours.every(({ notEnded, faults }) => notEnded + faults === 0),
    [`ours within ${MAX_MS} ms`]: ours.every(({ longestMs }) => longestMs <= MAX_MS),
    [`ours within ${MAX_MB} MB`]: ours.every(({ mostMb }) => mostMb <= MAX_MB),
  };
  console.log(
    JSON.stringify({
      bench: "xgrammar",
      peer: library ? XGRAMMAR : "not installed",
      table,
      bars,
      pass: Object.values(bars).every(Boolean),
    }),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
