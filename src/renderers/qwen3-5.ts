import { unframeThinking } from "./chatml.js";
import { qwenImageTokens, type SizedImage } from "./image-size.js";
import {
  type ContentPart,
  hasThinking,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  type UnparsedToolCall,
  withoutThinking,
} from "./messages.js";
import { isJsonContainer, type JsonValue, printPythonJson, printPythonText } from "./python-json.js";
import { strip, stripEnd, stripStart } from "./python-text.js";
import type { RenderContext, RendererTokenizer } from "./renderer.js";
import { VisionRenderer } from "./vision-renderer.js";
import { declareXmlTools, readXmlToolCall, writeXmlToolCall, xmlCallHead } from "./xml-tools.js";

/** Whether the model thinks before it answers or is told not to, and whether earlier turns keep their thoughts. */
export type Qwen35Thinking = "enabled" | "disabled" | "preserved";

/** Qwen3.5's turns: the prompt opens the block of thoughts, and calls have a tag for each argument. */
export class Qwen35Renderer extends VisionRenderer {
  readonly #thinking: Qwen35Thinking;

  constructor(tokenizer: RendererTokenizer, thinking: Qwen35Thinking = "enabled") {
    super(tokenizer);
    this.#thinking = thinking;
  }

  protected override get disablesThinking(): boolean {
    return this.#thinking === "disabled";
  }

  protected override get prefill(): string {
    return this.disablesThinking ? EMPTY_BLOCK : "<think>\n";
  }

  protected override imageTokens(image: SizedImage): number {
    return qwenImageTokens(image);
  }

  protected override trim(content: Message["content"]): Message["content"] {
    if (typeof content === "string") return strip(content);
    return trimVisible(trimVisible(content, stripStart).toReversed(), stripEnd).toReversed();
  }

  protected override keepsThinking(message: Message, context: RenderContext): boolean {
    return this.#thinking === "preserved" || super.keepsThinking(message, context);
  }

  protected override emptyBlock({ content }: Message, { index, lastUserIndex }: RenderContext): string {
    return index > lastUserIndex && !hasThinking(content) ? EMPTY_BLOCK : "";
  }

  protected override writeThinking(thinking: string): string {
    return framed(strip(thinking));
  }

  protected override writeToolCalls({ content, toolCalls = [] }: Message): string {
    const hasContent =
      typeof content === "string"
        ? content !== ""
        : withoutThinking(content).some((part) => part.type === "image" || strip(part.text) !== "");
    const calls = toolCalls.map((call) => writeXmlToolCall(call, (value) => this.writeArgument(value)));
    return (hasContent ? "\n\n" : "") + calls.join("\n");
  }

  protected writeArgument(value: JsonValue): string {
    return printArgument(value);
  }

  protected override readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return unframeThinking(parts);
  }

  protected override callHead(name: string | undefined): string {
    return xmlCallHead(name);
  }

  protected override readToolCall(body: string, rawText: string): ToolCall | UnparsedToolCall {
    return readXmlToolCall(body, rawText);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    const declared = tools.length > 0 ? declareXmlTools(tools.map((tool) => printPythonJson(tool))) : "";
    return [{ role: "system", content: [declared, systemPrompt].filter(Boolean).join("\n\n") }];
  }
}

const EMPTY_BLOCK = framed("");

function framed(thinking: string): string {
  return `<think>\n${thinking}\n</think>\n\n`;
}

/** Objects and lists as JSON, all else as Python's text: `True`, `None`. */
export function printArgument(value: unknown): string {
  return isJsonContainer(value) ? printPythonJson(value) : printPythonText(value);
}

/** Cuts white space off the first text of what is shown; thoughts in between do not count. */
function trimVisible(parts: readonly ContentPart[], cut: (text: string) => string): readonly ContentPart[] {
  let isEdge = true;
  return parts.map((part) => {
    if (!isEdge || part.type === "thinking") return part;
    const trimmed = part.type === "text" ? { ...part, text: cut(part.text) } : part;
    isEdge = trimmed.type === "text" && trimmed.text === "";
    return trimmed;
  });
}
