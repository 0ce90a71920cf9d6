import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { UsageError } from "./context.js";

/** The default export of a file of the user's. TypeScript is read by Node where it can, or by the tsx of the user's project. */
export async function defaultExportOf(file: string): Promise<unknown> {
  const path = resolve(file);
  if (!existsSync(path)) throw new UsageError(`There is no file ${file}`);
  const { href } = pathToFileURL(path);
  const { default: value } = (await import(href).catch(async (error: unknown) => {
    if ((error as { code?: unknown }).code !== "ERR_UNKNOWN_FILE_EXTENSION" || !/\.[cm]?tsx?$/.test(path))
      throw error;
    await useTsx(path, file);
    return import(href);
  })) as { readonly default?: unknown };
  return value;
}

async function useTsx(path: string, file: string): Promise<void> {
  let loader: string;
  try {
    loader = createRequire(path).resolve("tsx/esm/api");
  } catch {
    throw new UsageError(
      `Node ${process.versions.node} does not read TypeScript: to use ${file}, run \`npm install --save-dev tsx\` in its folder, ` +
        "or take Node 22.18 or newer, or write the file in JavaScript (.mjs)",
    );
  }
  const { register } = (await import(pathToFileURL(loader).href)) as { register(): unknown };
  register();
}
