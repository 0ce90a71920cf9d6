/** Text in and out of a model's tokens, from the tokenizer and chat template in its folder. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Tokenizer } from "@huggingface/tokenizers";
import { defaultModel } from "./default-model.js";

export interface TextTokenizer {
  /** `addSpecialTokens: false` leaves out what the tokenizer puts around a whole text (Llama's first token, for one). */
  encode(text: string, options?: { readonly addSpecialTokens?: boolean }): number[];
  /** `skipSpecialTokens: true` leaves out tokens such as the end of a turn. */
  decode(tokens: ArrayLike<number>, options?: { readonly skipSpecialTokens?: boolean }): string;
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

export interface LocalTokenizer extends TextTokenizer {
  /** The tokens of a conversation, up to where the model's answer begins. */
  encodeChat(messages: readonly ChatMessage[]): number[];
}

type Settings = Readonly<Record<string, unknown>>;

/**
 * The tokenizer of a base model, given by its folder or Hugging Face id; that of the package's own `tinkerts/nano`
 * when left out. Needs no running backend.
 */
export async function loadTokenizer(model: string = defaultModel.name): Promise<LocalTokenizer> {
  const { resolveModel } = await import("./model-source.js");
  const { path: folder } = await resolveModel(model);
  const text = readTokenizer(folder);
  if (text === null) throw new Error(`There is no tokenizer.json in ${folder}.`);
  const encodeChat = await readChatTemplate(folder, text);
  return {
    ...text,
    encodeChat: (messages) => {
      if (encodeChat === null) throw new Error(`The model in ${folder} has no chat template.`);
      return encodeChat(messages);
    },
  };
}

/** The tokenizer without the chat template, read at once; null where the folder has none. */
export function readTokenizer(folder: string): TextTokenizer | null {
  const file = join(folder, "tokenizer.json");
  if (!existsSync(file)) return null;
  const tokenizer = new Tokenizer(JSON.parse(readFileSync(file, "utf8")) as object, readSettings(folder));
  return {
    encode: (text, { addSpecialTokens = true } = {}) =>
      tokenizer.encode(text, { add_special_tokens: addSpecialTokens }).ids,
    // Exactly the text of the tokens: a tidied one could not be encoded again to the same tokens.
    decode: (tokens, { skipSpecialTokens = false } = {}) =>
      tokens.length === 0
        ? ""
        : tokenizer.decode(Array.from(tokens), {
            skip_special_tokens: skipSpecialTokens,
            clean_up_tokenization_spaces: false,
          }),
  };
}

/** Writes conversations as the model was taught to read them; null where the folder has no chat template. */
export async function readChatTemplate(
  folder: string,
  tokenizer: TextTokenizer,
): Promise<LocalTokenizer["encodeChat"] | null> {
  const settings = readSettings(folder);
  const source = chatTemplate(folder, settings);
  if (source === undefined) return null;
  const { Template } = await import("@huggingface/jinja");
  const template = new Template(source);
  return (messages) => {
    const conversation = template.render({
      messages,
      add_generation_prompt: true,
      bos_token: contentOf(settings["bos_token"]),
      eos_token: contentOf(settings["eos_token"]),
    });
    // The template writes the special tokens itself.
    return tokenizer.encode(conversation, { addSpecialTokens: false });
  };
}

function readSettings(folder: string): Settings {
  const file = join(folder, "tokenizer_config.json");
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Settings) : {};
}

function chatTemplate(folder: string, settings: Settings): string | undefined {
  const { chat_template: template } = settings;
  if (typeof template === "string") return template;
  if (Array.isArray(template)) {
    const named = template as { name?: unknown; template?: unknown }[];
    const chosen = named.find((one) => one.name === "default") ?? named[0];
    if (typeof chosen?.template === "string") return chosen.template;
  }
  const file = join(folder, "chat_template.jinja");
  return existsSync(file) ? readFileSync(file, "utf8") : undefined;
}

/** Special tokens are written as text or as an object with their content. */
function contentOf(token: unknown): string {
  if (typeof token === "string") return token;
  const content = typeof token === "object" && token !== null && "content" in token ? token.content : "";
  return typeof content === "string" ? content : "";
}
