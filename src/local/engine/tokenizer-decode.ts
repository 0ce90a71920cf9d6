/** Turns tokens into text for stop strings; the tokenizer is read when the first one is asked for. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { readTokenizer, type TextTokenizer } from "../tokenizer.js";

export function tokenizerDecode(folder: string): ((tokens: number[]) => string) | null {
  if (!existsSync(join(folder, "tokenizer.json"))) return null;
  let tokenizer: TextTokenizer | null = null;
  return (tokens) => {
    tokenizer ??= readTokenizer(folder);
    return tokenizer?.decode(tokens) ?? "";
  };
}
