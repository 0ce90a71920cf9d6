// How much longer `import "tinkerts"` takes than an empty module, and whether it loads only what the SDK needs.
import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const ROUNDS = 21;
const LIMIT_MS = 60;
const FORBIDDEN_ROOMS = ["cli", "local", "cookbook", "tokenizers"];

const dist = fileURLToPath(new URL("../dist/", import.meta.url));
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
const sdkScript = write("time-sdk.mjs", timed(pathToFileURL(`${dist}index.js`).href));
const hooks = write(
  "hooks.mjs",
  "import { appendFileSync } from 'node:fs';\n" +
    "export async function load(url, context, next) { appendFileSync(process.env.LOADED, url + '\\n'); return next(url, context); }",
);
const listScript = write(
  "list.mjs",
  `import { register } from "node:module"; register(${JSON.stringify(pathToFileURL(hooks).href)}); await import(${JSON.stringify(pathToFileURL(`${dist}index.js`).href)});`,
);

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
const loadedList = join(folder, "loaded.txt");
writeFileSync(loadedList, "");
run(listScript, { LOADED: loadedList });
const { readFileSync } = await import("node:fs");
const loaded = readFileSync(loadedList, "utf8").trim().split("\n");
const forbidden = loaded.filter((url) => FORBIDDEN_ROOMS.some((room) => url.includes(`/dist/${room}/`)));

const difference = median(sdkMs) - median(emptyMs);
console.log(
  `tinkerts ${median(sdkMs).toFixed(1)} ms, empty module ${median(emptyMs).toFixed(1)} ms, ${loaded.length} files`,
);
console.log(
  JSON.stringify({
    bench: "import",
    emptyMs: median(emptyMs),
    sdkMs: median(sdkMs),
    differenceMs: difference,
    limitMs: LIMIT_MS,
    filesLoaded: loaded.length,
    forbidden,
    pass: difference < LIMIT_MS && forbidden.length === 0,
  }),
);
