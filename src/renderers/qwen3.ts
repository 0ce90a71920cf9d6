import { TinkerError } from "../errors.js";
import { ChatMlRenderer, roleHeader, TURN_END, unframeThinking, writeJsonToolCalls } from "./chatml.js";
import { qwenImageTokens, type SizedImage } from "./image-size.js";
import {
  type ContentPart,
  contentParts,
  hasThinking,
  type Message,
  type ToolDeclaration,
  textOf,
  withoutThinking,
} from "./messages.js";
import { printPythonJson } from "./python-json.js";
import { strip, stripStart } from "./python-text.js";
import type { RenderContext, RenderedMessage, RendererTokenizer } from "./renderer.js";
import { VisionRenderer } from "./vision-renderer.js";

/** Whether the model thinks before it answers, is told not to, or knows no thoughts at all. */
type Thinking = "enabled" | "disabled" | "unknown";

/** Qwen3's turns: the one being produced begins with a block of thoughts, earlier ones lose theirs. */
export class Qwen3Renderer extends ChatMlRenderer {
  readonly #thinking: Thinking;

  constructor(tokenizer: RendererTokenizer, thinking: Thinking = "enabled") {
    super(tokenizer);
    this.#thinking = thinking;
  }

  override get hasExtensionProperty(): boolean {
    return this.#thinking === "unknown";
  }

  protected override get disablesThinking(): boolean {
    return this.#thinking === "disabled";
  }

  protected override promptSuffix(role: string, context: RenderContext): readonly number[] {
    if (!this.disablesThinking) return super.promptSuffix(role, context);
    return this.encode(roleHeader(role, context.index) + framed(""));
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    const { role, content } = message;
    const isUnasked = isLastAnswer(message, context) && context.lastUserIndex < 0;
    if (this.disablesThinking && isUnasked && content.length > 0) throw new TinkerError(NO_USER);
    const { text, hasText } = this.#write(message, context);
    const shown = role === "tool" ? `<tool_response>\n${text}\n</tool_response>` : text;
    const calls = writeJsonToolCalls(message);
    const body = shown + (hasText && calls !== "" ? "\n" : "") + calls;
    return {
      header: this.encode(this.header(message, context)),
      // What a person writes never becomes a sign of the format.
      output: [
        this.tokenizer.encode(body, { addSpecialTokens: false, splitSpecialTokens: true }),
        this.endsTurn(message, context) ? [this.token(TURN_END)] : [],
      ],
    };
  }

  #write(message: Message, context: RenderContext): Written {
    const { role, content } = message;
    const isProduced = isLastAnswer(message, context) && context.lastUserIndex >= 0;
    if (isProduced && this.#thinking !== "unknown") return producedTurn(content);
    const parts = contentParts(content);
    const isHistory = role === "assistant" && !context.isLast;
    const text = (isHistory ? withoutThinking(parts) : parts).map(partText).join("");
    return { text, hasText: text !== "" };
  }

  /** A turn that thinks begins with a block of thoughts, also where there are none. */
  override callOpening(name?: string): string {
    return (this.#thinking === "enabled" ? framed("") : "") + super.callOpening(name);
  }

  protected override readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return this.#thinking === "unknown" ? parts : unframeThinking(parts, stripNewlines);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return declareJsonTools(tools, systemPrompt);
  }
}

/** Qwen3-VL's turns: thoughts without a frame, and images between text. */
export class Qwen3VlRenderer extends VisionRenderer {
  readonly #thinking: Thinking;

  constructor(tokenizer: RendererTokenizer, thinking: Exclude<Thinking, "disabled"> = "enabled") {
    super(tokenizer);
    this.#thinking = thinking;
  }

  protected override imageTokens(image: SizedImage): number {
    return qwenImageTokens(image);
  }

  protected override writeThinking(thinking: string): string {
    return `<think>${thinking}</think>`;
  }

  protected override writeToolCalls(message: Message, context: RenderContext): string {
    const parts = contentParts(message.content);
    const shown = this.keepsThinking(message, context) ? parts : withoutThinking(parts);
    const isEmpty = shown.every((part) => part.type === "text" && part.text === "");
    return (isEmpty ? "" : "\n") + writeJsonToolCalls(message);
  }

  protected override readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return this.#thinking === "unknown" ? parts : unframeThinking(parts, stripNewlines);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return declareJsonTools(tools, systemPrompt);
  }
}

const NO_USER =
  "This renderer's prompt closes the block of thoughts, which Qwen3's format writes behind a message of the user " +
  "only, and the conversation has none. Add a message of the user, or take the renderer that thinks.";

interface Written {
  readonly text: string;
  /** Whether the message says anything besides thoughts in their frame. */
  readonly hasText: boolean;
}

function isLastAnswer({ role }: Message, { isLast }: RenderContext): boolean {
  return role === "assistant" && isLast;
}

function framed(thinking: string): string {
  return `<think>\n${stripNewlines(thinking)}\n</think>\n\n`;
}

function stripNewlines(text: string): string {
  return strip(text, "\n");
}

function partText(part: ContentPart): string {
  switch (part.type) {
    case "text":
      return part.text;
    case "thinking":
      return `<think>${part.thinking}</think>`;
    case "image":
      throw new TinkerError("Qwen3's text models take no images; those of Qwen3-VL and Qwen3.5 do.");
    default:
      throw new TinkerError(
        `content has a part that is neither text, thinking nor image: ${String(part satisfies never)}`,
      );
  }
}

/** Every thought in its frame, and an empty frame where there is none. */
function producedTurn(content: Message["content"]): Written {
  const parts = typeof content === "string" ? inlineThinking(content) : content;
  const hasThoughts = hasThinking(content) || hasThinking(parts);
  let text = hasThoughts ? "" : framed("");
  let isAfterBlock = !hasThoughts;
  // Without thoughts the text counts as one, whose first newlines all give way to those of the frame.
  for (const part of hasThoughts ? parts : [{ type: "text" as const, text: parts.map(partText).join("") }]) {
    if (part.type === "thinking") text += framed(part.thinking);
    else text += isAfterBlock ? stripStart(partText(part), "\n") : partText(part);
    isAfterBlock = part.type === "thinking";
  }
  return { text, hasText: textOf({ content: parts }) !== "" };
}

/** Thoughts that are written out in a text. */
function inlineThinking(content: string): readonly ContentPart[] {
  const end = content.indexOf("</think>");
  if (end === -1) return [{ type: "text", text: content }];
  const thinking = content.slice(0, end).split("<think>").at(-1)!;
  const text = stripStart(content.slice(end + "</think>".length), "\n");
  return [
    { type: "thinking", thinking },
    { type: "text", text },
  ];
}

function declareJsonTools(tools: readonly ToolDeclaration[], systemPrompt: string): readonly Message[] {
  const declared = tools.map((tool) => printPythonJson({ type: "function", function: tool })).join("\n");
  const text = `# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${declared}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>`;
  return [
    { role: "system", content: [systemPrompt, tools.length > 0 ? text : ""].filter(Boolean).join("\n\n") },
  ];
}
