import { existsSync } from "node:fs";
import { register } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { UsageError } from "./context.js";

/** The default export of a file of the user's, which may be TypeScript whatever Node this is. */
export async function defaultExportOf(file: string): Promise<unknown> {
  const path = resolve(file);
  if (!existsSync(path)) throw new UsageError(`There is no file ${file}`);
  if (/\.m?ts$/.test(path) && !readsTypeScript())
    register(new URL("./typescript-hooks.js", import.meta.url).href);
  const { default: value } = (await import(pathToFileURL(path).href)) as { readonly default?: unknown };
  return value;
}

/** Node says so from 22.18 on; Bun and Deno always do. */
function readsTypeScript(): boolean {
  const { typescript } = process.features as { readonly typescript?: unknown };
  return Boolean(typescript) || ["bun", "deno"].some((runtime) => runtime in process.versions);
}
