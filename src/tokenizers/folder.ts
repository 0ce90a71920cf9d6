import { TOKENIZER_FILES, type TokenizerFileName, type TokenizerFiles } from "./files.js";
import { node } from "./node-builtins.js";

/** The tokenizer's files in a folder; none if the folder does not exist. */
export async function readFolder(folder: string): Promise<TokenizerFiles> {
  if (node === undefined) return {};
  const { readFile } = node.fs.promises;
  const files: { [Name in TokenizerFileName]?: string } = {};
  for (const name of TOKENIZER_FILES) {
    // The first of the two vocabularies is enough, and both are large.
    if (name === "tiktoken.model" && files["tokenizer.json"] !== undefined) continue;
    const text = await readFile(node.path.join(folder, name), "utf8").catch((error: unknown) => {
      const code = (error as { code?: unknown }).code;
      if (code === "ENOENT" || code === "ENOTDIR") return undefined;
      throw error;
    });
    if (text !== undefined) files[name] = text;
  }
  return files;
}
