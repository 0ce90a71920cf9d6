import { TinkerError, ValidationError } from "../errors.js";
import { boolean, type FieldsOf, functionOf, isRecord, list, optional, value } from "../wire/index.js";
import { type RenderTemplate, templateCompiler } from "./render-template.js";

/** One turn of a conversation, with other fields that its model's chat template reads (`tool_calls`, `reasoning_content`). */
export interface ChatMessage {
  readonly role: string;
  readonly content?: unknown;
  readonly [field: string]: unknown;
}

/** How a conversation is written with a chat template. */
export interface ChatTemplateOptions {
  /** Ends where the model's answer begins. Default: false, as in transformers. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** Functions the model may call, as JSON schemas. */
  readonly tools?: readonly object[] | undefined;
  /** Further template variables, such as `{ enable_thinking: false }`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** The time for templates that write the date. Default: the time of the call. */
  readonly now?: (() => Date) | undefined;
}

/** The options of `applyChatTemplate` but for the kind of its result. */
export const CHAT_TEMPLATE_FIELDS = {
  addGenerationPrompt: optional(boolean),
  tools: optional(list(value<object>("an object", isRecord))),
  variables: optional(value<Readonly<Record<string, unknown>>>("an object", isRecord)),
  now: optional(functionOf<() => Date>()),
} satisfies FieldsOf<ChatTemplateOptions>;

type Settings = Readonly<Record<string, unknown>>;

/** Templates by name; most models have one, named "default". */
export type ChatTemplates = ReadonlyMap<string, string>;

export type RenderChat = (messages: readonly ChatMessage[], options?: ChatTemplateOptions) => string;

/** The templates of `chat_template.jinja`, else of `tokenizer_config.json`. */
export function findChatTemplates(settings: Settings, jinjaFile: string | undefined): ChatTemplates {
  if (jinjaFile !== undefined) return new Map([["default", jinjaFile]]);
  const { chat_template: template } = settings;
  if (typeof template === "string") return new Map([["default", template]]);
  if (!Array.isArray(template)) return new Map();
  return new Map(
    (template as { name?: unknown; template?: unknown }[]).flatMap(({ name, template: source }) =>
      typeof name === "string" && typeof source === "string" ? [[name, source] as const] : [],
    ),
  );
}

/** Writes conversations as the model was trained to read them; null where it has no chat template. */
export async function compileChatTemplate(
  templates: ChatTemplates,
  settings: Settings,
): Promise<RenderChat | null> {
  if (templates.size === 0) return null;
  const compile = await templateCompiler();
  const compiled = new Map<string, RenderTemplate>();
  const specialTokens = { bos_token: "", eos_token: "", ...specialTokensOf(settings) };
  return (messages, { addGenerationPrompt = false, tools, variables, now } = {}) => {
    if (!Array.isArray(messages) || messages.length === 0) {
      throw new ValidationError("messages", "messages must be a list of at least one message");
    }
    const name = tools !== undefined && templates.has("tool_use") ? "tool_use" : "default";
    const source = templates.get(name) ?? [...templates.values()][0]!;
    try {
      const render = compiled.get(source) ?? compile(source);
      compiled.set(source, render);
      const settings = { tools: tools ?? null, documents: null, add_generation_prompt: addGenerationPrompt };
      return render({ ...specialTokens, messages, ...settings, ...variables }, now);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new TinkerError(`The chat template refused this conversation: ${why}`, { cause: error });
    }
  };
}

/** `bos_token` and the like, which are written as text or as an object with their content. */
export function specialTokensOf(settings: Settings): Record<string, string> {
  const tokens: Record<string, string> = {};
  for (const [name, value] of Object.entries(settings)) {
    if (!name.endsWith("_token")) continue;
    const content = typeof value === "object" && value !== null && "content" in value ? value.content : value;
    if (typeof content === "string") tokens[name] = content;
  }
  return tokens;
}
