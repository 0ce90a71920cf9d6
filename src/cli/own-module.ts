import { existsSync } from "node:fs";
import * as nodeModules from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { UsageError } from "./context.js";

const PROGRAM = /\.[cm]?[jt]s$/;
const DATA = /\.(?:(?:jsonl?|ndjson|csv|tsv)(?:\.gz)?|parquet)$/;

/** Loads the default export of a user's file, which may be TypeScript on every Node version. */
export async function defaultExportOf(file: string): Promise<unknown> {
  const path = resolve(file);
  if (!existsSync(path)) throw new UsageError(`There is no file ${file}`);
  if (!PROGRAM.test(path)) {
    const advice = DATA.test(path) ? "; `tinkerts train sft` and `tinkerts train dpo` read rows of data" : "";
    throw new UsageError(`${file} is not a program: expected a .ts, .mts, .js or .mjs file${advice}`);
  }
  if (/\.m?ts$/.test(path) && !isBunOrDeno()) {
    typescriptHooks ??= readTypeScript();
    await typescriptHooks;
  }
  const { default: value } = (await import(pathToFileURL(path).href)) as { readonly default?: unknown };
  return value;
}

const isBunOrDeno = () => ["bun", "deno"].some((runtime) => runtime in process.versions);

let typescriptHooks: Promise<void> | undefined;

/**
 * Also used if Node strips types itself (22.18 and newer), because Node refuses enums and does not find `./reward.js`
 * for `reward.ts`.
 */
async function readTypeScript(): Promise<void> {
  const hooks = new URL("./typescript-hooks.js", import.meta.url).href;
  // From 22.15 on; `register` is deprecated where it exists.
  const { registerHooks } = nodeModules as { readonly registerHooks?: (hooks: object) => void };
  if (registerHooks === undefined) nodeModules.register(hooks);
  else registerHooks(await import(hooks));
}
