import { TinkerError } from "../errors.js";
import { huggingFaceTokenizer } from "./hugging-face-tokenizer.js";
import type { TextTokenizer } from "./text-tokenizer.js";
import { tiktokenTokenizer } from "./tiktoken-tokenizer.js";

/** Names of the files a tokenizer may consist of. */
export const TOKENIZER_FILES = [
  "tokenizer.json",
  "tiktoken.model",
  "tokenizer_config.json",
  "chat_template.jinja",
] as const;

export type TokenizerFileName = (typeof TOKENIZER_FILES)[number];

/** The text of each file that there is. Plain data: it can be sent to a worker. */
export type TokenizerFiles = { readonly [Name in TokenizerFileName]?: string };

/** A tokenizer needs one of these files. */
export function hasVocabulary(names: { has(name: TokenizerFileName): boolean }): boolean {
  return names.has("tokenizer.json") || names.has("tiktoken.model");
}

/** `place` is where the files came from, for the error. */
export function createTextTokenizer(files: TokenizerFiles, place: string): TextTokenizer {
  const { "tokenizer.json": tokenizerJson, "tiktoken.model": tiktokenModel } = files;
  const settings = readSettings(files, place);
  if (tokenizerJson !== undefined) {
    return huggingFaceTokenizer(parse(tokenizerJson, "tokenizer.json", place), settings);
  }
  if (tiktokenModel !== undefined) return tiktokenTokenizer(tiktokenModel, settings);
  throw new TinkerError(`There is no tokenizer.json and no tiktoken.model in ${place}.`);
}

export function readSettings(files: TokenizerFiles, place: string): Readonly<Record<string, unknown>> {
  const text = files["tokenizer_config.json"];
  return text === undefined ? {} : parse(text, "tokenizer_config.json", place);
}

function parse(text: string, name: TokenizerFileName, place: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch (error) {
    throw new TinkerError(`${name} in ${place} is not valid JSON: ${(error as Error).message}`, {
      cause: error,
    });
  }
  throw new TinkerError(`${name} in ${place} is not a JSON object.`);
}
