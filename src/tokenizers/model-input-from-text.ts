import { ModelInput } from "../wire/index.js";
import type { EncodeOptions, TextTokenizer } from "./text-tokenizer.js";

/** A model input of one text. */
export function modelInputFromText(
  text: string,
  tokenizer: Pick<TextTokenizer, "encode">,
  options: EncodeOptions = {},
): ModelInput {
  return ModelInput.fromInts(tokenizer.encode(text, options));
}
