// `npm run conformance`: the official Python SDK, newest release, as a client of the built-in backend.
// Makes a virtual environment in .venv/ the first time; needs python3 and the package registry.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const environment = join(root, ".venv");
const python = join(environment, "bin/python");
const run = (command, args) => execFileSync(command, args, { cwd: root, stdio: "inherit" });

if (!existsSync(python)) run("python3", ["-m", "venv", environment]);
run(python, ["-m", "pip", "install", "--quiet", "--upgrade", "--disable-pip-version-check", "tinker"]);
run(python, ["-c", "import tinker; print('tinker', tinker.__version__)"]);
run(process.execPath, [join(root, "scripts/build.mjs")]);
const { status } = spawnSync(
  process.execPath,
  [join(root, "node_modules/vitest/vitest.mjs"), "run", "test/local/python-sdk.test.ts"],
  { cwd: root, stdio: "inherit", env: { ...process.env, TINKERTS_PYTHON: python } },
);
process.exit(status ?? 1);
