import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import type { ChatMessage, TokenizerFiles } from "../../src/tokenizers/index.js";

const fixtures = fileURLToPath(new URL("../fixtures/tokenizers/", import.meta.url));
const nano = fileURLToPath(new URL("../../models/nano/", import.meta.url));

/** Tokenizers of these kinds, cut down to what the texts touch; see scripts/golden/make_tokenizer_fixtures.py. */
export const families = ["qwen3", "deepseek-v3", "gpt2", "yi", "minilm", "kimi", "nano"] as const;
export type Family = (typeof families)[number];

export interface Golden {
  /** Of every text, without the tokens around it. */
  ids: number[][];
  /** Where those around it make a difference: index of the text, tokens. */
  withSpecialTokens: [number, number[]][];
  /** Text of the tokens where it is not the one they came from, by index. */
  decoded: { all: Record<string, string>; noSpecial: Record<string, string> | null };
  chats: {
    messages: ChatMessage[];
    tools: object[] | null;
    addGenerationPrompt: boolean;
    text: string;
    ids: number[];
  }[];
}

const unpack = (path: string) => gunzipSync(readFileSync(join(fixtures, path))).toString("utf8");

export const readTexts = () => JSON.parse(unpack("texts.json.gz")) as string[];
export const readGolden = (family: Family) => JSON.parse(unpack(`${family}/golden.json.gz`)) as Golden;

export function readFiles(family: Family): TokenizerFiles {
  if (family === "nano") {
    return {
      "tokenizer.json": readFileSync(join(nano, "tokenizer.json"), "utf8"),
      "tokenizer_config.json": readFileSync(join(nano, "tokenizer_config.json"), "utf8"),
    };
  }
  const settings = readFileSync(join(fixtures, family, "tokenizer_config.json"), "utf8");
  const vocabulary = family === "kimi" ? "tiktoken.model" : "tokenizer.json";
  return { [vocabulary]: unpack(`${family}/${vocabulary}.gz`), "tokenizer_config.json": settings };
}

/** A folder with the tokenizer's files, in a folder of its own that the caller removes. */
export function writeFolder(
  files: TokenizerFiles,
  folder = mkdtempSync(join(tmpdir(), "tinkerts-tokenizer-")),
): string {
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}
