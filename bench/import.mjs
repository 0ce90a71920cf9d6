// How much longer `import "tinkerts"` takes than an empty module, and whether it loads only what the SDK needs.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { sized } from "./shared/sized.mjs";

const ROUNDS = sized(21, 1);
const LIMIT_MS = 60;
const FORBIDDEN_SOURCES = /^src\/(?:cli|local|cookbook|tokenizers)\//;

const folder = mkdtempSync(join(tmpdir(), "tinkerts-import-"));
const write = (name, source) => {
  const path = join(folder, name);
  writeFileSync(path, source);
  return path;
};
const timed = (specifier) =>
  `const start = performance.now(); await import(${JSON.stringify(specifier)}); console.log(performance.now() - start);`;
const empty = write("empty.mjs", "export {};");
const emptyScript = write("time-empty.mjs", timed(pathToFileURL(empty).href));
const sdk = import.meta.resolve("tinkerts");
const sdkScript = write("time-sdk.mjs", timed(sdk));
const run = (script, env = {}) => {
  const { stdout, stderr, status } = spawnSync(process.execPath, [script], {
    encoding: "utf8",
    env: { ...process.env, ...env },
  });
  if (status !== 0) throw new Error(stderr);
  return stdout;
};
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

const emptyMs = [];
const sdkMs = [];
for (let round = 0; round < ROUNDS; round += 1) {
  emptyMs.push(Number(run(emptyScript)));
  sdkMs.push(Number(run(sdkScript)));
}
/** What the entry reaches without being asked: the sources in its file and in those it imports. */
const reached = new Set();
const visit = (file) => {
  if (reached.has(file)) return;
  reached.add(file);
  for (const [, specifier] of readFileSync(file, "utf8").matchAll(/^import\b[^;"']*?["'](\.[^"']+)["']/gm))
    visit(resolve(dirname(file), specifier));
};
visit(fileURLToPath(sdk));
const sources = [...reached].flatMap((file) =>
  [...readFileSync(file, "utf8").matchAll(/^\/\/#region (\S+)$/gm)].map(([, source]) => source),
);
const forbidden = sources.filter((source) => FORBIDDEN_SOURCES.test(source));

const difference = median(sdkMs) - median(emptyMs);
console.log(
  `tinkerts ${median(sdkMs).toFixed(1)} ms, empty module ${median(emptyMs).toFixed(1)} ms, ${sources.length} sources in ${reached.size} files`,
);
console.log(
  JSON.stringify({
    bench: "import",
    emptyMs: median(emptyMs),
    sdkMs: median(sdkMs),
    differenceMs: difference,
    limitMs: LIMIT_MS,
    sourceFiles: sources.length,
    forbidden,
    pass: difference < LIMIT_MS && forbidden.length === 0 && sources.length > 0,
  }),
);
