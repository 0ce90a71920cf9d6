import type { BaseModelInfo } from "../../engine/engine.js";
import { type EncodeChat, readChatTemplate, readTokenizer } from "../../tokenizer.js";
import { HttpError } from "../http/http-error.js";

/** Text in and out of a model's tokens, special ones left out of the text. */
export interface TextModel {
  encode(text: string): number[];
  decode(tokens: readonly number[]): string;
  readonly encodeChat: EncodeChat;
}

/** Loads each model's tokenizer when it is first needed. */
export function textModels(): (model: BaseModelInfo) => Promise<TextModel> {
  const loaded = new Map<string, Promise<TextModel>>();
  return (model) => {
    const known = loaded.get(model.name) ?? load(model);
    loaded.set(model.name, known);
    known.catch(() => loaded.delete(model.name));
    return known;
  };
}

async function load({ name, tokenizerPath }: BaseModelInfo): Promise<TextModel> {
  const tokenizer = readTokenizer(tokenizerPath);
  if (tokenizer === null)
    throw new HttpError(422, `Model ${name} has no tokenizer.json, so it takes and gives tokens only.`);
  const encodeChat = await readChatTemplate(tokenizerPath, tokenizer);
  return {
    encode: (text) => tokenizer.encode(text),
    decode: (tokens) => tokenizer.decode(tokens, { skipSpecialTokens: true }),
    encodeChat(messages) {
      if (encodeChat !== null) return encodeChat(messages);
      throw new HttpError(422, `Model ${name} has no chat template; use completions instead.`);
    },
  };
}
