// `npm run bench -- NAME`: builds, runs bench/NAME.mjs and ends with its JSON line; the exit code follows its `pass`.
// With --report the result goes into docs/proof.md, too. `all` runs one after the other.
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
if (name === "all") {
  const each = names.map((one) =>
    spawnSync(process.execPath, [`${here}run.mjs`, one, ...rest], { stdio: "inherit" }),
  );
  process.exit(each.every(({ status }) => status === 0) ? 0 : 1);
}
if (!names.includes(name)) {
  console.error(`Usage: npm run bench -- NAME [--report], where NAME is all or one of: ${names.join(", ")}`);
  process.exit(2);
}
execFileSync(process.execPath, [`${here}../scripts/build.mjs`], { stdio: "inherit" });
const args = rest.filter((argument) => argument !== "--report");
const run = spawnSync(process.execPath, ["--expose-gc", `${here}${name}.mjs`, ...args], {
  encoding: "utf8",
  stdio: ["inherit", "pipe", "inherit"],
  maxBuffer: 1 << 28,
});
process.stdout.write(run.stdout);
const result = JSON.parse(run.stdout.trim().split("\n").at(-1) ?? "");
// What cannot be measured on this machine stays as it was measured on another.
if (rest.includes("--report") && !result.notMeasured) writeProofSection(`speed ${name}`, report(result));
// `pass` is null where there was no peer to measure against.
process.exit(run.status === 0 && result.pass !== false ? 0 : 1);

function report({ bars, pass, all: _, ...figures }) {
  const verdict = { true: "Bars met.", false: "**A bar is missed.**", null: "Measured without a peer." }[
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
