// Builds dist/. What ships is dist/bundle/, one module graph for all entries of the package, and the declarations beside
// it. tsc's own modules, dist/MODULE/FILE.js, stay here: our tests, benchmarks and scripts reach into them.
import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
const source = (file) => join(root, "src", file);

/** The files of dist/bundle that are opened by name: by package.json, as threads, as the command. */
const ENTRIES = {
  index: "index.ts",
  "ai-sdk": "ai-sdk/index.ts",
  autograd: "training/autograd/index.ts",
  checkpoints: "checkpoints/index.ts",
  cookbook: "cookbook/index.ts",
  engine: "local/engine/index.ts",
  gateway: "gateway/index.ts",
  jax: "training/jax.ts",
  local: "local/index.ts",
  renderers: "renderers/index.ts",
  "run-log": "training/run-log.node.ts",
  tokenizers: "tokenizers/index.ts",
  training: "training/index.ts",
  cli: "cli/main.ts",
  "engine-worker.node": "local/engine/engine-worker.node.ts",
  "tokenizer-files": "tokenizers/files.ts",
  platform: "transport/platform.ts",
  "platform.node": "transport/platform.node.ts",
  heartbeat: "session/heartbeat-loop.ts",
  "heartbeat.node": "session/heartbeat-loop.node.ts",
};
/** What package.json's `imports` choose by runtime: the bundle leaves these names as they are. */
const CHOSEN_BY_RUNTIME = { "#platform": "transport/platform", "#heartbeat": "session/heartbeat-loop" };

const wasmFiles = readdirSync(join(root, "src"), { recursive: true }).filter((file) =>
  file.endsWith(".wasm"),
);
/** What a browser loads before the dashboard shows anything. */
const MAX_PAGE_KILOBYTES = 80;

rmSync(dist, { recursive: true, force: true });
compileModules();
await bundle(await bundlePage());

/** tsc's modules and declarations, with the wasm beside them and the names of `imports` resolved. */
function compileModules() {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "-p", join(root, "tsconfig.build.json")], { stdio: "inherit" });
  for (const file of wasmFiles) cpSync(source(file), join(dist, file));
  for (const file of readdirSync(dist, { recursive: true }).map((name) => join(dist, name))) {
    if (!/\.(?:js|d\.ts)$/.test(file)) continue;
    const code = readFileSync(file, "utf8");
    const resolved = code.replace(/(?<=from |import\()"(#\w+)"/g, (_, name) => {
      const target = `${CHOSEN_BY_RUNTIME[name]}${file.endsWith(".d.ts") ? "" : ".node"}.js`;
      const path = relative(dirname(file), join(dist, target));
      return JSON.stringify(path.startsWith(".") ? path : `./${path}`);
    });
    if (resolved !== code) writeFileSync(file, resolved);
  }
}

/** The dashboard's page: one script and one style sheet, within their budget. */
async function bundlePage() {
  const folder = join(dist, "page");
  const { output } = await build({
    root: source("dashboard/page"),
    base: "./",
    configFile: false,
    logLevel: "error",
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: {
      outDir: folder,
      target: "es2022",
      cssTarget: "esnext",
      modulePreload: false,
      rolldownOptions: { output: { entryFileNames: "page.js", assetFileNames: "page.[ext]" } },
    },
  });
  const sizes = readdirSync(folder).map((file) => gzipSync(readFileSync(join(folder, file))).length);
  const kilobytes = sizes.reduce((sum, size) => sum + size, 0) / 1024;
  if (kilobytes > MAX_PAGE_KILOBYTES)
    throw new Error(
      `the dashboard's page takes ${kilobytes.toFixed(1)} KB, at most ${MAX_PAGE_KILOBYTES} allowed`,
    );
  return output;
}

async function bundle(page) {
  const folder = join(dist, "bundle");
  const inlined = /^(?:@bufbuild|commander|tinkerts|yaml|@oxc-project)(?:\/|$)/;
  let chunks;
  const graph = await rolldown({
    input: Object.fromEntries(Object.entries(ENTRIES).map(([name, file]) => [name, source(file)])),
    platform: "node",
    tsconfig: join(root, "tsconfig.json"),
    transform: { target: "es2022" },
    external: (id) => /^[^./\0]/.test(id) && !inlined.test(id),
    plugins: [
      {
        name: "chunks",
        buildEnd() {
          chunks = chunksByModule((id) => this.getModuleInfo(id)?.importedIds ?? []);
        },
      },
    ],
  });
  const { output } = await graph.write({
    dir: folder,
    chunkFileNames: "[name].js",
    sourcemap: true,
    comments: { jsdoc: false },
    codeSplitting: { groups: [{ debugName: "by use", name: (id) => chunks.get(id) }] },
  });
  await graph.close();
  const hooks = await bundleHooks(folder);
  writeFileSync(join(root, "THIRD-PARTY-NOTICES.txt"), noticesOf([...output, ...hooks, ...page]));
  for (const file of wasmFiles) cpSync(source(file), join(folder, basename(file)));
}

/** What reads TypeScript for Nodes that do not, in a file of its own: it runs in a thread of Node's. */
async function bundleHooks(folder) {
  const graph = await rolldown({ input: source("cli/typescript-hooks.ts"), platform: "node" });
  const { output } = await graph.write({ file: join(folder, "typescript-hooks.js"), minify: true });
  await graph.close();
  return output;
}

/** Licenses of the packages whose code is inside the bundles: from their license files, or from the top of their modules. */
function noticesOf(output) {
  const texts = new Map();
  for (const id of output.flatMap(({ moduleIds }) => moduleIds ?? [])) {
    const folder = packageFolder(id);
    if (folder === undefined) continue;
    const file = readdirSync(folder).find((name) => /^licen[cs]e(?:\.|$)/i.test(name));
    const text = file ? readFileSync(join(folder, file), "utf8") : leadingComment(readFileSync(id, "utf8"));
    texts.set(folder, (texts.get(folder) ?? new Set()).add(text.trim()));
  }
  const notices = [...texts].map(([folder, licenses]) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const told = [...licenses].filter((text) => text !== "").join("\n\n");
    if (told === "") throw new Error(`${name} is in the bundles, and has no license text to pass on`);
    const whole = told.includes("Apache License, Version 2.0")
      ? "\n\nThe text of that license is in the file LICENSE."
      : "";
    return `${name} ${version}, ${license}\n\n${told}${whole}\n`;
  });
  const head = "The files in dist/bundle and dist/page contain code of these packages.\n";
  return [head, ...notices.sort()].join(`\n${"-".repeat(80)}\n\n`);
}

/** The folder of the package a module belongs to; undefined for our own. Helpers that the bundler adds have no path. */
function packageFolder(id) {
  if (id.startsWith("\0")) return join(root, "node_modules/rolldown");
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0];
}

function leadingComment(code) {
  const [comment] = /^(?:\/\/.*\n)*/.exec(code);
  return comment.replaceAll(/^\/\/ ?/gm, "");
}

/**
 * Few files load fast: what `import "tinkerts"` needs is one file, what every call of the command needs is another, and
 * below them what the parts chosen by runtime need, which would otherwise import from the file that imports them.
 * Everything else is left to the bundler.
 */
function chunksByModule(importsOf) {
  const reach = (...files) => {
    const reached = new Set(files.map(source));
    for (const file of reached) for (const next of importsOf(file)) reached.add(next);
    return reached;
  };
  const chosen = Object.values(CHOSEN_BY_RUNTIME).flatMap((file) => [`${file}.ts`, `${file}.node.ts`]);
  const below = reach(...chosen);
  for (const name of Object.keys(CHOSEN_BY_RUNTIME)) {
    if (below.has(name)) throw new Error(`one of ${chosen.join(", ")} imports what imports ${name}`);
  }
  const chunks = new Map();
  for (const file of reach("cli/run.ts")) chunks.set(file, "command");
  for (const file of reach("index.ts")) chunks.set(file, below.has(file) ? "base" : "sdk");
  return chunks;
}
