// `npm run bench -- NAME`: builds, runs bench/NAME.mjs and ends with its JSON line; the exit code follows its `pass`.
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const names = readdirSync(here)
  .filter((file) => file.endsWith(".mjs") && file !== "run.mjs")
  .map((file) => file.slice(0, -4));
const [name, ...rest] = process.argv.slice(2);
if (!names.includes(name)) {
  console.error(`Usage: npm run bench -- NAME, where NAME is one of: ${names.join(", ")}`);
  process.exit(2);
}
execFileSync(process.execPath, [`${here}../scripts/build.mjs`], { stdio: "inherit" });
const run = spawnSync(process.execPath, ["--expose-gc", `${here}${name}.mjs`, ...rest], {
  encoding: "utf8",
  stdio: ["inherit", "pipe", "inherit"],
  maxBuffer: 1 << 28,
});
process.stdout.write(run.stdout);
const last = run.stdout.trim().split("\n").at(-1) ?? "";
// `pass` is null where there was no peer to measure against.
process.exit(run.status === 0 && JSON.parse(last).pass !== false ? 0 : 1);
