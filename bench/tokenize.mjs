// Tokens per second of encode, beside the Rust tokenizers on the same text and the same tokenizer.json.
// Needs a build: npm run build. TOKENIZERS_PYTHON names a Python with the package `tokenizers` (else null);
// an argument names another folder with a tokenizer.json than that of tinkerts/nano.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { loadTokenizer } from "tinkerts/tokenizers";
import { sized } from "./shared/sized.mjs";

const ROUNDS = sized(5, 1);
const DOCUMENTS = sized(200, 5);
const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? join(root, "models/nano");

/** Prose and code: the pages of the documentation and the sources of this package, in pieces of a few kilobytes. */
function readDocuments() {
  const below = (top, ending) =>
    readdirSync(join(root, top), { recursive: true })
      .filter((file) => file.endsWith(ending))
      .sort()
      .map((file) => join(root, top, file));
  const files = [...below("docs", ".md"), ...below("src", ".ts")];
  const text = files.map((file) => readFileSync(file, "utf8")).join("\n");
  return Array.from({ length: DOCUMENTS }, (_, index) => text.slice(index * 2_000, (index + 1) * 2_000));
}

const PYTHON = `
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer
job = json.load(sys.stdin)
tokenizer = Tokenizer.from_file(job["file"])
best, ids = 1e9, None
for _ in range(job["rounds"]):
    start = time.perf_counter()
    ids = [tokenizer.encode(text).ids for text in job["texts"]]
    best = min(best, time.perf_counter() - start)
print(json.dumps({"seconds": best, "ids": ids}))
`;

function measureRust(texts) {
  const python = process.env["TOKENIZERS_PYTHON"];
  if (!python) return null;
  const run = spawnSync(python, ["-c", PYTHON], {
    input: JSON.stringify({ file: join(folder, "tokenizer.json"), texts, rounds: ROUNDS }),
    encoding: "utf8",
    maxBuffer: 1 << 30,
  });
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout);
}

const texts = readDocuments();
const loadStart = performance.now();
const tokenizer = await loadTokenizer(folder);
const loadMs = performance.now() - loadStart;

const firstStart = performance.now();
const ids = texts.map((text) => tokenizer.encode(text));
const firstSeconds = (performance.now() - firstStart) / 1000;
let seconds = Number.POSITIVE_INFINITY;
for (let round = 0; round < ROUNDS; round += 1) {
  const start = performance.now();
  for (const text of texts) tokenizer.encode(text);
  seconds = Math.min(seconds, (performance.now() - start) / 1000);
}
const batchStart = performance.now();
const batch = await tokenizer.encodeBatch(texts);
const batchSeconds = (performance.now() - batchStart) / 1000;

const rust = measureRust(texts);
const tokens = ids.reduce((sum, { length }) => sum + length, 0);
const same =
  JSON.stringify(batch) === JSON.stringify(ids) &&
  (rust === null || JSON.stringify(rust.ids) === JSON.stringify(ids));
const perSecond = (time) => Math.round(tokens / time);
console.log(
  JSON.stringify({
    bench: "tokenize",
    characters: texts.reduce((sum, { length }) => sum + length, 0),
    tokens,
    loadMs: Math.round(loadMs),
    tokensPerSecond: perSecond(seconds),
    firstTokensPerSecond: perSecond(firstSeconds),
    batchTokensPerSecond: perSecond(batchSeconds),
    rustTokensPerSecond: rust === null ? null : perSecond(rust.seconds),
    ratio: rust === null ? null : Number((rust.seconds / seconds).toFixed(3)),
    sameIds: same,
    pass: same,
  }),
);
