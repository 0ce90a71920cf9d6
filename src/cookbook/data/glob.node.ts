import type { Dirent } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { TinkerError } from "../../errors.js";

const MAX_FILES = 10_000;
const MAX_FOLDERS = 10_000;

/** Whether a name stands for the files that match it. */
export function isPattern(name: string): boolean {
  return /[*?{[]/.test(name);
}

// By hand, because Node has `fs.glob` only from version 22 on.

/** The files that match a pattern with `*`, `?`, `[a-z]`, `{a,b}` and `**`, in the order of their names and numbers. */
export async function filesMatching(pattern: string): Promise<readonly string[]> {
  const parts = pattern.replaceAll("\\", "/").split("/");
  const found: string[] = [];
  let folders = 0;
  const walk = async (folder: string, [part, ...rest]: readonly string[]): Promise<void> => {
    if (part === undefined) return;
    if (part === "**") await walk(folder, rest);
    else if (rest.length > 0 && !isPattern(part))
      return await walk(folder === "" ? `${part}/` : join(folder, part), rest);
    folders += 1;
    if (folders > MAX_FOLDERS)
      throw new TinkerError(`${pattern} looks into more than ${MAX_FOLDERS} folders.`);
    const matches = part === "**" ? undefined : matcher(part);
    for (const entry of await entriesIn(folder)) {
      const isHidden = entry.name.startsWith(".") && !part.startsWith(".");
      if (isHidden || matches?.test(entry.name) === false) continue;
      const path = join(folder, entry.name);
      if (entry.isDirectory()) await walk(path, matches === undefined ? [part, ...rest] : rest);
      else if (rest.length === 0) found.push(path);
      if (found.length > MAX_FILES) throw new TinkerError(`${pattern} matches more than ${MAX_FILES} files.`);
    }
  };
  await walk("", parts);
  if (found.length === 0) throw new TinkerError(`No file matches ${pattern}.`);
  return [...new Set(found)].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
}

async function entriesIn(folder: string): Promise<readonly Dirent[]> {
  return await readdir(folder || ".", { withFileTypes: true }).catch(() => []);
}

function matcher(part: string): RegExp {
  const source = part.replaceAll(/\*+|\?|\[[^\]]+\]|\{[^{}]*\}|[\s\S]/g, (token) => {
    if (token.startsWith("*")) return ".*";
    if (token === "?") return ".";
    if (token.length > 2 && token.startsWith("["))
      return `[${token
        .slice(1, -1)
        .replace(/^!/, "^")
        .replaceAll(/[\\\]]/g, "\\$&")}]`;
    if (token.startsWith("{") && token.endsWith("}") && token.length > 1)
      return `(?:${token.slice(1, -1).split(",").map(literal).join("|")})`;
    return literal(token);
  });
  try {
    return new RegExp(`^${source}$`, "s");
  } catch {
    throw new TinkerError(`${part} is not a pattern: check its brackets.`);
  }
}

const literal = (text: string) => text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
