// npm run sizes [-- REVISION]: lines of source per module, without tests and generated files; with a revision of git, that
// revision's beside them.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
/** Counted together: the way of a request from the client to the server. */
const WAY_OF_A_REQUEST = ["clients", "futures", "session", "transport", "wire", "local/server"];
const SPLIT_MODULES = ["local"];
const isSource = (file) =>
  /\.ts$/.test(file) && !/\.test\.ts$|(?:^|\/)(?:gen|fixtures|test-support)(?:\/|\.ts$)/.test(file);

function moduleOf(file) {
  const [module, inner, ...rest] = file.split("/");
  if (inner === undefined) return "(root)";
  return SPLIT_MODULES.includes(module) && rest.length > 0 ? `${module}/${inner}` : module;
}

function countLines(files, read) {
  const lines = new Map();
  for (const file of files.filter(isSource)) {
    const count = read(file).split("\n").length - 1;
    lines.set(moduleOf(file), (lines.get(moduleOf(file)) ?? 0) + count);
  }
  return lines;
}

function linesNow() {
  const files = readdirSync(join(root, "src"), { recursive: true });
  return countLines(files, (file) => readFileSync(join(root, "src", file), "utf8"));
}

function linesAt(revision) {
  const git = (...args) => execFileSync("git", args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  const files = git("ls-tree", "-r", "--name-only", revision, "src/").trim().split("\n");
  return countLines(
    files.map((file) => file.slice("src/".length)),
    (file) => git("show", `${revision}:src/${file}`),
  );
}

const sum = (lines, modules = [...lines.keys()]) =>
  modules.reduce((total, module) => total + (lines.get(module) ?? 0), 0);
const now = linesNow();
const revision = process.argv[2];
const before = revision === undefined ? undefined : linesAt(revision);

function print(name, count, earlier) {
  const change =
    earlier === undefined ? "" : `${String(earlier).padStart(9)}${`${count - earlier}`.padStart(8)}`;
  console.log(`${name.padEnd(64)}${String(count).padStart(8)}${change}`);
}

if (before !== undefined)
  console.log(`${"".padEnd(64)}${"now".padStart(8)}${"before".padStart(9)}${"change".padStart(8)}`);
for (const module of [...new Set([...now.keys(), ...(before?.keys() ?? [])])].sort())
  print(module, now.get(module) ?? 0, before && (before.get(module) ?? 0));
print("all", sum(now), before && sum(before));
print(WAY_OF_A_REQUEST.join(" + "), sum(now, WAY_OF_A_REQUEST), before && sum(before, WAY_OF_A_REQUEST));
