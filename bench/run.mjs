// `npm run bench -- NAME`: builds, runs bench/NAME.mjs and ends with its JSON line; the exit code follows its `pass`.
// With --report the result goes into docs/proof.md, too. `all` runs one after the other. With --smallest nothing is
// measured: each bench runs with as little as it can, and only has to come to its JSON line.
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { writeProofSection } from "../scripts/proof-section.mjs";
import { sdkTable } from "./sdk/table.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const names = readdirSync(here)
  .filter((file) => file.endsWith(".mjs") && file !== "run.mjs")
  .map((file) => file.slice(0, -4));
const [name, ...rest] = process.argv.slice(2);
if (name !== "all" && !names.includes(name)) {
  const known = names.join(", ");
  console.error(
    `Usage: npm run bench -- NAME [--report | --smallest], where NAME is all or one of: ${known}`,
  );
  process.exit(2);
}
if (!process.env.TINKERTS_BENCH_BUILT)
  execFileSync(process.execPath, [`${here}../scripts/build.mjs`], { stdio: "inherit" });
const isSmallest = rest.includes("--smallest");
const env = {
  ...process.env,
  TINKERTS_BENCH_BUILT: "1",
  ...(isSmallest && { TINKERTS_BENCH_SIZE: "smallest" }),
};
if (name === "all") {
  const failed = names.filter((one) => {
    const startedMs = performance.now();
    const { status } = spawnSync(process.execPath, [`${here}run.mjs`, one, ...rest], {
      stdio: "inherit",
      env,
    });
    console.log(`${one}: ${Math.round((performance.now() - startedMs) / 1000)} s`);
    return status !== 0;
  });
  if (failed.length > 0) console.error(`These benches fail: ${failed.join(", ")}`);
  process.exit(failed.length === 0 ? 0 : 1);
}
const args = rest.filter((argument) => !["--report", "--smallest"].includes(argument));
const run = spawnSync(process.execPath, ["--expose-gc", `${here}${name}.mjs`, ...args], {
  encoding: "utf8",
  stdio: ["inherit", "pipe", "inherit"],
  maxBuffer: 1 << 28,
  env,
});
process.stdout.write(run.stdout);
const lastLine = run.stdout.trim().split("\n").at(-1);
// A bench that broke has printed why to stderr.
if (!lastLine.startsWith("{")) process.exit(run.status || 1);
const result = JSON.parse(lastLine);
if (result.notMeasured) console.log(`${name}, not measured here: ${JSON.stringify(result.notMeasured)}`);
// What cannot be measured on this machine stays as it was measured on another.
if (rest.includes("--report") && !result.notMeasured) writeProofSection(`speed ${name}`, report(result));
// `pass` is null where there was no peer to measure against.
if (result.pass === false) process.exit(isSmallest ? 0 : 1);
process.exit(run.status ?? 1);

function report({ bars, pass, all: _, ...figures }) {
  const success = Object.values(bars ?? {}).includes(null)
    ? "Bars met where they were measured."
    : "Bars met.";
  const verdict = { true: success, false: "**A bar is missed.**", null: "Measured without a peer." }[
    String(pass)
  ];
  const each = Object.entries(bars ?? {}).map(
    ([bar, met]) => `- ${bar}: ${{ true: "met", false: "**missed**", null: "not measured" }[String(met)]}`,
  );
  const data = figures.bench === "sdk" ? sdkTable(figures) : figureLists(figures);
  return [verdict ?? "No bar.", ...each, "", data].join("\n");
}

/** A line for each figure, then a table for each list. */
function figureLists(figures) {
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  const lines = [];
  const tables = [];
  for (const [name, value] of Object.entries(figures)) {
    if (Array.isArray(value) && typeof value[0] === "object") tables.push(`\n${table(value)}`);
    else lines.push(`${name}: ${text(value)}`);
  }
  return ["```", ...lines, "```", ...tables].join("\n");
}

function table(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [
    line(columns),
    line(columns.map(() => "---")),
    ...rows.map((row) => line(columns.map((column) => row[column] ?? "-"))),
  ].join("\n");
}
