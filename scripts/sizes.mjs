// npm run sizes [-- REVISION]: lines of source per room, without tests and generated files; with a revision of git, that
// revision's beside them.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
/** Counted together: the way of a request from the client to the server. */
const WAY_OF_A_REQUEST = ["clients", "futures", "session", "transport", "wire", "local/server"];
const SPLIT_ROOMS = ["local"];
const isSource = (file) =>
  /\.ts$/.test(file) && !/\.test\.ts$|(?:^|\/)(?:gen|fixtures|test-support)(?:\/|\.ts$)/.test(file);

function roomOf(file) {
  const [room, inner, ...rest] = file.split("/");
  if (inner === undefined) return "(root)";
  return SPLIT_ROOMS.includes(room) && rest.length > 0 ? `${room}/${inner}` : room;
}

function countLines(files, read) {
  const lines = new Map();
  for (const file of files.filter(isSource)) {
    const count = read(file).split("\n").length - 1;
    lines.set(roomOf(file), (lines.get(roomOf(file)) ?? 0) + count);
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

const sum = (lines, rooms = [...lines.keys()]) =>
  rooms.reduce((total, room) => total + (lines.get(room) ?? 0), 0);
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
for (const room of [...new Set([...now.keys(), ...(before?.keys() ?? [])])].sort())
  print(room, now.get(room) ?? 0, before && (before.get(room) ?? 0));
print("all", sum(now), before && sum(before));
print(WAY_OF_A_REQUEST.join(" + "), sum(now, WAY_OF_A_REQUEST), before && sum(before, WAY_OF_A_REQUEST));
