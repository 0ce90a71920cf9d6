import { TinkerError } from "../../../errors.js";
import { loadTokenizer, type Tokenizer } from "../../../tokenizers/index.js";
import type { BaseModelInfo } from "../../engine/engine.js";
import { HttpError } from "../http/http-error.js";
import { ChatFormats } from "./chat-formats.js";
import { TokenNames } from "./token-names.js";

/** Text in and out of a model's tokens, and how it chats. */
export class TextModel {
  readonly info: BaseModelInfo;
  readonly tokenizer: Tokenizer;
  readonly formats: ChatFormats;
  #tokenNames: TokenNames | undefined;

  constructor(info: BaseModelInfo, tokenizer: Tokenizer) {
    this.info = info;
    this.tokenizer = tokenizer;
    this.formats = new ChatFormats(info.name, tokenizer);
  }

  /** Read when they are first asked for: few requests want logprobs, and vocabularies are large. */
  get tokenNames(): TokenNames {
    this.#tokenNames ??= new TokenNames(this.info.tokenizerPath, this.tokenizer);
    return this.#tokenNames;
  }
}

/** Finds a model's text side. */
export type TextModels = (model: BaseModelInfo) => Promise<TextModel>;

/** Loads each model's tokenizer when it is first needed. */
export function textModels(): TextModels {
  const loaded = new Map<string, Promise<TextModel>>();
  return (model) => {
    const known = loaded.get(model.name) ?? load(model);
    loaded.set(model.name, known);
    known.catch(() => loaded.delete(model.name));
    return known;
  };
}

async function load(info: BaseModelInfo): Promise<TextModel> {
  try {
    return new TextModel(info, await loadTokenizer(info.tokenizerPath, { offline: true }));
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw new HttpError(422, `Model ${info.name} has no tokenizer, so it takes and gives tokens only.`);
  }
}
