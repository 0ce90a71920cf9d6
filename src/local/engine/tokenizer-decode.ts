/** Turns tokens into text for stop strings; the tokenizer is read when the first one is asked for. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Tokenizer } from "@huggingface/tokenizers";

export function tokenizerDecode(folder: string): ((tokens: number[]) => string) | null {
  const file = join(folder, "tokenizer.json");
  if (!existsSync(file)) return null;
  let tokenizer: Tokenizer | null = null;
  return (tokens) => {
    if (!tokenizer) {
      const settings = join(folder, "tokenizer_config.json");
      tokenizer = new Tokenizer(
        JSON.parse(readFileSync(file, "utf8")) as object,
        existsSync(settings) ? (JSON.parse(readFileSync(settings, "utf8")) as object) : {},
      );
    }
    return tokenizer.decode(tokens, { skip_special_tokens: false, clean_up_tokenization_spaces: false });
  };
}
