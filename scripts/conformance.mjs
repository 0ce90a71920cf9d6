// `npm run conformance`: the official Python SDK, newest release, as the judge of the wire and as a client of the
// built-in backend. Makes a virtual environment in .venv/ the first time; needs python3 and the package registry, or
// TINKERTS_PYTHON, a Python that has the tinker package (and, for custom losses, PyTorch).
//
//   --report          writes the results into docs/proof.md
//   --against URL     runs our client's methods against another server instead, with TINKER_API_KEY as its key: what it
//                     does not offer is reported. --model M if not its first one, --name N for the report
//   --cases N         values per type and direction (1000)      --seed N   where the generators start (1)
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { conformanceSections } from "./conformance-report.mjs";
import { writeProofSection } from "./proof-section.mjs";

const { values: options } = parseArgs({
  options: {
    report: { type: "boolean", default: false },
    against: { type: "string" },
    model: { type: "string" },
    name: { type: "string" },
    cases: { type: "string", default: "1000" },
    seed: { type: "string", default: "1" },
  },
});
const root = fileURLToPath(new URL("..", import.meta.url));
const run = (command, args) => execFileSync(command, args, { cwd: root, stdio: "inherit" });

/** A Python with the newest tinker. PyTorch, for custom losses, is welcome but large: without it their rows say so. */
function findPython() {
  const given = process.env.TINKERTS_PYTHON;
  if (given) return given;
  const environment = join(root, ".venv");
  const python = join(environment, "bin/python");
  if (!existsSync(python)) run("python3", ["-m", "venv", environment]);
  const install = ["-m", "pip", "install", "--quiet", "--upgrade", "--disable-pip-version-check"];
  run(python, [...install, "tinker"]);
  const torch = spawnSync(
    python,
    [
      ...install,
      "--timeout",
      "15",
      "--retries",
      "0",
      "torch",
      "--index-url",
      "https://download.pytorch.org/whl/cpu",
    ],
    { cwd: root, timeout: 120_000 },
  );
  if (torch.status !== 0)
    console.log("PyTorch could not be installed: custom losses of the Python SDK are left out.");
  return python;
}

const { against } = options;
const python = against === undefined ? findPython() : "";
if (python !== "") run(python, ["-c", "import tinker; print('tinker', tinker.__version__)"]);
const results = mkdtempSync(join(tmpdir(), "tinkerts-conformance-"));
const files =
  against === undefined
    ? ["test/conformance", "test/cli/auth.test.ts"]
    : ["test/conformance/other-backend.test.ts"];
const { status } = spawnSync(
  process.execPath,
  [join(root, "node_modules/vitest/vitest.mjs"), "run", ...files],
  {
    cwd: root,
    stdio: "inherit",
    env: {
      ...process.env,
      TINKERTS_PYTHON: python,
      TINKERTS_CASES: options.cases,
      TINKERTS_SEED: options.seed,
      TINKERTS_CONFORMANCE_RESULTS: results,
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
// A run without another server has nothing new to say about others.
if (against === undefined) delete found["other-backends"];
const sections = conformanceSections(found);
for (const [id, markdown] of Object.entries(sections)) {
  if (options.report) writeProofSection(id, markdown);
  else console.log(`\n${markdown}`);
}
process.exit(status ?? 1);
