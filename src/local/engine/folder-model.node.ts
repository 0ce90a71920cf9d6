import { existsSync } from "node:fs";
import { join } from "node:path";
import { readTokenizer, readTokenizerJson, type TextTokenizer } from "../tokenizer.js";
import type { EngineModel, ModelTokenizer } from "./engine-core.js";
import { openModelFolder } from "./model/model-folder.node.js";

/** The model in a Hugging Face folder. */
export function folderModel({ name, path }: { name: string; path: string }): EngineModel {
  const tokenizer = folderTokenizer(path);
  return { name, open: () => openModelFolder(path), ...(tokenizer && { tokenizer }) };
}

function folderTokenizer(folder: string): ModelTokenizer | undefined {
  if (!existsSync(join(folder, "tokenizer.json"))) return undefined;
  let tokenizer: TextTokenizer | null | undefined;
  return {
    decode(tokens) {
      tokenizer ??= readTokenizer(folder);
      return tokenizer?.decode(tokens) ?? "";
    },
    json: () => readTokenizerJson(folder),
  };
}
