import { readFile, stat } from "node:fs/promises";
import { messageOf } from "../../errors.js";
import { type CommandContext, UsageError } from "../context.js";

/** Names the environment variable that has the keys of `tinkerts serve`. */
export const KEYS_VARIABLE = "TINKERTS_SERVE_API_KEYS";

/** The keys that a server takes: those given one by one and those of a file, else those of an environment variable. */
export async function serverKeys(
  {
    apiKey = [],
    apiKeyFile,
  }: { readonly apiKey?: readonly string[] | undefined; readonly apiKeyFile?: string | undefined },
  context: CommandContext,
  variable: string = KEYS_VARIABLE,
): Promise<readonly string[]> {
  if (apiKey.length === 0 && apiKeyFile === undefined) return words(process.env[variable] ?? "");
  const inFile = apiKeyFile === undefined ? [] : await keysInFile(apiKeyFile, context);
  return [...apiKey, ...inFile];
}

async function keysInFile(path: string, context: CommandContext): Promise<string[]> {
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    throw new UsageError(`--api-key-file: ${messageOf(error)}`);
  });
  const keys = words(text.replaceAll(/^\s*#.*$/gm, ""));
  if (keys.length === 0) throw new UsageError(`--api-key-file: no key in ${path}; put one on each line`);
  if (process.platform !== "win32" && ((await stat(path)).mode & 0o077) !== 0)
    context.notify(`note: other users of this machine may read ${path}: chmod 600 ends that`);
  return keys;
}

function words(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== "");
}
