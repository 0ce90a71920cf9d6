import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { UsageError } from "./context.js";

/** The default export of a file of the user's. TypeScript is read by Node where it can, or by the tsx of the user's project. */
export async function defaultExportOf(file: string): Promise<unknown> {
  const path = resolve(file);
  if (!existsSync(path)) throw new UsageError(`There is no file ${file}`);
  if (/\.[cm]?tsx?$/.test(path) && !readsTypeScript()) await useTsx(path, file);
  const { default: value } = (await import(pathToFileURL(path).href)) as { readonly default?: unknown };
  return value;
}

/** Node says so from 22.18 on; Bun and Deno always do. */
function readsTypeScript(): boolean {
  const { typescript } = process.features as { readonly typescript?: unknown };
  return Boolean(typescript) || ["bun", "deno"].some((runtime) => runtime in process.versions);
}

/** What tsx exports for `require` cannot register itself: this takes what it exports for `import`. */
async function useTsx(path: string, file: string): Promise<void> {
  const require = createRequire(path);
  let manifest: string;
  try {
    manifest = require.resolve("tsx/package.json");
  } catch {
    throw new UsageError(
      `Node ${process.versions.node} does not read TypeScript: to use ${file}, run \`npm install --save-dev tsx\` in its folder, ` +
        "or take Node 22.18 or newer, or write the file in JavaScript (.mjs)",
    );
  }
  const { exports } = require(manifest) as {
    readonly exports: { readonly "./esm/api": { readonly import: { readonly default: string } } };
  };
  const api = new URL(exports["./esm/api"].import.default, pathToFileURL(manifest));
  const { register } = (await import(api.href)) as { register(): unknown };
  register();
}
