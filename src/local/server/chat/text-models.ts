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
export class TextModels {
  readonly #loaded = new Map<string, Promise<TextModel>>();

  get(model: BaseModelInfo): Promise<TextModel> {
    let loaded = this.#loaded.get(model.name);
    if (loaded === undefined) {
      loaded = loadTextModel(model);
      this.#loaded.set(model.name, loaded);
      loaded.catch(() => this.#loaded.delete(model.name));
    }
    return loaded;
  }
}

async function loadTextModel(model: BaseModelInfo): Promise<TextModel> {
  const tokenizer = readTokenizer(model.tokenizerPath);
  if (tokenizer === null) {
    throw new HttpError(422, `Model ${model.name} has no tokenizer.json, so it takes and gives tokens only.`);
  }
  const encodeChat = await readChatTemplate(model.tokenizerPath, tokenizer);
  return {
    encode: (text) => tokenizer.encode(text),
    decode: (tokens) => tokenizer.decode(tokens, { skipSpecialTokens: true }),
    encodeChat: (messages) => {
      if (encodeChat === null) {
        throw new HttpError(422, `Model ${model.name} has no chat template; use completions instead.`);
      }
      return encodeChat(messages);
    },
  };
}
