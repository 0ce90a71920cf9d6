/** Text in and out of a model's tokens, from the tokenizer in its folder. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createTextTokenizer } from "../tokenizers/files.js";
import type { TextTokenizer } from "../tokenizers/index.js";

export type { TextTokenizer } from "../tokenizers/index.js";

/** The tokenizer without the chat template, read at once; null where the folder has none. */
export function readTokenizer(folder: string): TextTokenizer | null {
  const tokenizerJson = readText(folder, "tokenizer.json");
  if (tokenizerJson === undefined) return null;
  const settings = readText(folder, "tokenizer_config.json");
  return createTextTokenizer(
    {
      "tokenizer.json": tokenizerJson,
      ...(settings === undefined ? {} : { "tokenizer_config.json": settings }),
    },
    folder,
  );
}

/** Content of a folder's `tokenizer.json`; undefined if there is none. */
export function readTokenizerJson(folder: string): unknown {
  const text = readText(folder, "tokenizer.json");
  return text === undefined ? undefined : JSON.parse(text);
}

/** Reads the tokenizer in a model's folder when it is first asked for, and once. */
export function tokenizersOf(): (model: { readonly tokenizerPath: string }) => TextTokenizer | null {
  const known = new Map<string, TextTokenizer | null>();
  return ({ tokenizerPath }) => {
    const tokenizer = known.get(tokenizerPath) ?? readTokenizer(tokenizerPath);
    known.set(tokenizerPath, tokenizer);
    return tokenizer;
  };
}

function readText(folder: string, name: string): string | undefined {
  const file = join(folder, name);
  return existsSync(file) ? readFileSync(file, "utf8") : undefined;
}
