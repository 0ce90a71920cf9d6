import { TinkerError, ValidationError } from "../errors.js";

/** One turn of a conversation, with whatever else its model's chat template reads (`tool_calls`, `reasoning_content`). */
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
  /** What else the template reads, as `{ enable_thinking: false }`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

type Settings = Readonly<Record<string, unknown>>;

/** Templates by name; most models have one, named "default". */
export type ChatTemplates = ReadonlyMap<string, string>;

export type RenderChat = (messages: readonly ChatMessage[], options?: ChatTemplateOptions) => string;

/** Those of `chat_template.jinja`, or else those of `tokenizer_config.json`. */
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

/** Writes conversations as the model was taught to read them; null where it has no chat template. */
export async function compileChatTemplate(
  templates: ChatTemplates,
  settings: Settings,
): Promise<RenderChat | null> {
  if (templates.size === 0) return null;
  const { Template } = await import("@huggingface/jinja");
  const compiled = new Map<string, InstanceType<typeof Template>>();
  const specialTokens = { bos_token: "", eos_token: "", ...specialTokensOf(settings) };
  return (messages, { addGenerationPrompt = false, tools, variables } = {}) => {
    if (!Array.isArray(messages) || messages.length === 0) {
      throw new ValidationError("messages", "messages must be a list of at least one message");
    }
    const name = tools !== undefined && templates.has("tool_use") ? "tool_use" : "default";
    const source = templates.get(name) ?? [...templates.values()][0]!;
    try {
      let template = compiled.get(source);
      if (template === undefined) {
        // Python's Jinja knows one kind of newline, whatever the file has.
        template = new Template(source.replaceAll(/\r\n?/g, "\n"));
        compiled.set(source, template);
      }
      return template.render({
        ...specialTokens,
        messages,
        tools: tools ?? null,
        documents: null,
        add_generation_prompt: addGenerationPrompt,
        ...variables,
      });
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
