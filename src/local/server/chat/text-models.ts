import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { TokenNames } from "../../../chat-api/index.js";
import { TinkerError } from "../../../errors.js";
import { ModelFormats } from "../../../renderers/model-formats.js";
import { loadTokenizer, type Tokenizer } from "../../../tokenizers/index.js";
import { type BaseModelInfo, EngineInputError } from "../../engine/engine.js";
import { byteVocabulary } from "../../engine/sampling/json/token-bytes.js";
import { readTokenizerJson } from "../../tokenizer.js";
import { HttpError } from "../http/http-error.js";

const TOKENIZER_FILES = ["tokenizer.json", "tiktoken.model"];

/** Text in and out of a model's tokens, and how it chats. */
export class TextModel {
  readonly info: BaseModelInfo;
  readonly tokenizer: Tokenizer;
  readonly formats: ModelFormats;
  #tokenNames: TokenNames | undefined;

  constructor(info: BaseModelInfo, tokenizer: Tokenizer) {
    this.info = info;
    this.tokenizer = tokenizer;
    this.formats = new ModelFormats(info.name, tokenizer);
  }

  /** Read on first use: few requests ask for logprobs, and vocabularies are large. */
  get tokenNames(): TokenNames {
    this.#tokenNames ??= new TokenNames(this.tokenizer, bytesOfTokens(this.info.tokenizerPath));
    return this.#tokenNames;
  }

  async tokenizerSettings(): Promise<object> {
    const file = join(this.info.tokenizerPath, "tokenizer_config.json");
    return JSON.parse(await readFile(file, "utf8").catch(() => "{}")) as object;
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
    throw new HttpError(422, `${whyTokensOnly(info, error)} The model takes and gives tokens only.`);
  }
}

/** A tokenizer may be missing, or be refused for its pattern; the server's folders are not named to its clients. */
function whyTokensOnly({ name, tokenizerPath }: BaseModelInfo, { message }: TinkerError): string {
  const isThere = TOKENIZER_FILES.some((file) => existsSync(join(tokenizerPath, file)));
  if (!isThere) return `Model ${name} has no tokenizer.`;
  return `The tokenizer of model ${name} cannot be used: ${message.replaceAll(tokenizerPath, name)}`;
}

/** The bytes of each token; none for a vocabulary that is not made of bytes. */
function bytesOfTokens(folder: string): readonly (Uint8Array | undefined)[] {
  try {
    return byteVocabulary(readTokenizerJson(folder)).bytes;
  } catch (error) {
    if (!(error instanceof EngineInputError)) throw error;
    return [];
  }
}
