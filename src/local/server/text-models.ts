import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Template } from "@huggingface/jinja";
import type { Tokenizer } from "@huggingface/tokenizers";
import type { BaseModelInfo } from "../engine/engine.js";
import { HttpError } from "./http-error.js";

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/** Text in and out of a model's tokens, from the tokenizer and chat template in its folder. */
export interface TextModel {
  encode(text: string): number[];
  decode(tokens: readonly number[]): string;
  /** The tokens of a conversation, up to where the model's answer begins. */
  encodeChat(messages: readonly ChatMessage[]): number[];
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
  const tokenizerJson = await readJsonFile(join(model.tokenizerPath, "tokenizer.json"));
  if (tokenizerJson === undefined) {
    throw new HttpError(422, `Model ${model.name} has no tokenizer.json, so it takes and gives tokens only.`);
  }
  const config = (await readJsonFile(join(model.tokenizerPath, "tokenizer_config.json"))) ?? {};
  const [{ Tokenizer }, { Template }] = await Promise.all([
    import("@huggingface/tokenizers"),
    import("@huggingface/jinja"),
  ]);
  const tokenizer: Tokenizer = new Tokenizer(tokenizerJson, config);
  const source = await chatTemplate(model.tokenizerPath, config);
  const template: Template | undefined = source === undefined ? undefined : new Template(source);
  return {
    encode: (text) => tokenizer.encode(text).ids,
    decode: (tokens) => tokenizer.decode([...tokens], { skip_special_tokens: true }),
    encodeChat: (messages) => {
      if (template === undefined) {
        throw new HttpError(422, `Model ${model.name} has no chat template; use completions instead.`);
      }
      const text = template.render({
        messages,
        add_generation_prompt: true,
        bos_token: textOf(config["bos_token"]),
        eos_token: textOf(config["eos_token"]),
      });
      // The template writes the special tokens itself.
      return tokenizer.encode(text, { add_special_tokens: false }).ids;
    },
  };
}

async function chatTemplate(folder: string, config: Record<string, unknown>): Promise<string | undefined> {
  const { chat_template: template } = config;
  if (typeof template === "string") return template;
  if (Array.isArray(template)) {
    const named = template as { name?: unknown; template?: unknown }[];
    const chosen = named.find((one) => one.name === "default") ?? named[0];
    if (typeof chosen?.template === "string") return chosen.template;
  }
  return await readFile(join(folder, "chat_template.jinja"), "utf8").catch(() => undefined);
}

/** Special tokens are written as text or as an object with their content. */
function textOf(token: unknown): string {
  if (typeof token === "string") return token;
  const content = typeof token === "object" && token !== null && "content" in token ? token.content : "";
  return typeof content === "string" ? content : "";
}

async function readJsonFile(path: string): Promise<Record<string, unknown> | undefined> {
  const text = await readFile(path, "utf8").catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as Record<string, unknown>);
}
