import { readFile } from "node:fs/promises";
import type { LoadHook, ResolveHook } from "node:module";
import { fileURLToPath } from "node:url";
import { transform } from "sucrase";

const TYPESCRIPT = /\.m?ts$/;

/** TypeScript may import `./words.js` where `words.ts` lies, or `./words`. */
export const resolve: ResolveHook = async (specifier, context, next) => {
  try {
    return await next(specifier, context);
  } catch (error) {
    const isOwn = specifier.startsWith(".") && TYPESCRIPT.test(context.parentURL ?? "");
    if (!isOwn) throw error;
    const inTypeScript = specifier.replace(/(?:\.(m?)js)?$/, ".$1ts");
    try {
      return await next(inTypeScript, context);
    } catch {
      throw error;
    }
  }
};

/** Takes the types out of the user's own modules. */
export const load: LoadHook = async (url, context, next) => {
  if (!url.startsWith("file:") || !TYPESCRIPT.test(new URL(url).pathname)) return next(url, context);
  const filePath = fileURLToPath(url);
  const { code } = transform(await readFile(filePath, "utf8"), {
    transforms: ["typescript"],
    disableESTransforms: true,
    filePath,
  });
  return { format: "module", source: code, shortCircuit: true };
};
