/** Text in and out of a model's tokens, from the tokenizer and chat template in its folder. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { compileChatTemplate, findChatTemplates } from "../tokenizers/chat-template.js";
import { createTextTokenizer } from "../tokenizers/files.js";
import type { TextTokenizer } from "../tokenizers/index.js";

export type { TextTokenizer } from "../tokenizers/index.js";

/** One message of a conversation. */
export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/** The tokens of a conversation, up to where the model's answer begins. */
export type EncodeChat = (messages: readonly ChatMessage[]) => number[];

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

/** Reads the tokenizer in a model's folder when it is first asked for, and once. */
export function tokenizersOf(): (model: { readonly tokenizerPath: string }) => TextTokenizer | null {
  const known = new Map<string, TextTokenizer | null>();
  return ({ tokenizerPath }) => {
    const tokenizer = known.get(tokenizerPath) ?? readTokenizer(tokenizerPath);
    known.set(tokenizerPath, tokenizer);
    return tokenizer;
  };
}

/** Writes conversations as the model was taught to read them; null where the folder has no chat template. */
export async function readChatTemplate(folder: string, tokenizer: TextTokenizer): Promise<EncodeChat | null> {
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
