import { readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { transform } from "sucrase";

const TYPESCRIPT = /\.m?ts$/;

/** Calls the next hook: returns a value in this thread, a promise in Node's hooks thread. */
type Next<Context> = (what: string, context: Context) => unknown;

/** TypeScript may import `./words.js` for `words.ts`, or `./words`. */
export function resolve<Context extends { readonly parentURL?: string | undefined }>(
  specifier: string,
  context: Context,
  next: Next<Context>,
): unknown {
  const { parentURL } = context;
  const isOwn = specifier.startsWith(".") && parentURL !== undefined && TYPESCRIPT.test(parentURL);
  if (!isOwn || isFile(new URL(specifier, parentURL))) return next(specifier, context);
  const inTypeScript = specifier.replace(/(?:\.(m?)js)?$/, ".$1ts");
  return next(isFile(new URL(inTypeScript, parentURL)) ? inTypeScript : specifier, context);
}

/** Strips the types from the user's own modules. */
export function load<Context>(url: string, context: Context, next: Next<Context>): unknown {
  if (!url.startsWith("file:") || !TYPESCRIPT.test(new URL(url).pathname)) return next(url, context);
  const filePath = fileURLToPath(url);
  const { code } = transform(readFileSync(filePath, "utf8"), {
    transforms: ["typescript"],
    disableESTransforms: true,
    filePath,
  });
  return { format: "module", source: code, shortCircuit: true };
}

const isFile = (url: URL): boolean =>
  url.protocol === "file:" && statSync(url, { throwIfNoEntry: false })?.isFile() === true;
