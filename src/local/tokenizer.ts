/** Text in and out of a model's tokens, from the tokenizer and chat template in its folder. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  compileChatTemplate,
  createTextTokenizer,
  findChatTemplates,
  type TextTokenizer,
} from "../tokenizers/index.js";
import { defaultModel } from "./default-model.js";

export type { TextTokenizer } from "../tokenizers/index.js";

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

export interface LocalTokenizer extends TextTokenizer {
  /** The tokens of a conversation, up to where the model's answer begins. */
  encodeChat(messages: readonly ChatMessage[]): number[];
}

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
  const tokenizerJson = readText(folder, "tokenizer.json");
  if (tokenizerJson === undefined) return null;
  const settings = readText(folder, "tokenizer_config.json");
  return createTextTokenizer(
    {
      "tokenizer.json": tokenizerJson,
      ...(settings === undefined ? {} : { "tokenizer_config.json": settings }),
    },
    folder,
  );
}

/** Writes conversations as the model was taught to read them; null where the folder has no chat template. */
export async function readChatTemplate(
  folder: string,
  tokenizer: TextTokenizer,
): Promise<LocalTokenizer["encodeChat"] | null> {
  const settings = JSON.parse(readText(folder, "tokenizer_config.json") ?? "{}") as Record<string, unknown>;
  const templates = findChatTemplates(settings, readText(folder, "chat_template.jinja"));
  const render = await compileChatTemplate(templates, settings);
  if (render === null) return null;
  return (messages) => {
    const conversation = render(
      messages.map(({ role, content }) => ({ role, content })),
      { addGenerationPrompt: true },
    );
    // The template writes the special tokens itself.
    return tokenizer.encode(conversation, { addSpecialTokens: false });
  };
}

function readText(folder: string, name: string): string | undefined {
  const file = join(folder, name);
  return existsSync(file) ? readFileSync(file, "utf8") : undefined;
}
