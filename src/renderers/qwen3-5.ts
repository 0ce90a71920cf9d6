import { type OwnCallForm, unframeThinking } from "./chatml.js";
import { qwenImageTokens, type SizedImage } from "./image-size.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
import {
  type ContentPart,
  hasThinking,
  inlineThinking,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  type UnparsedToolCall,
  withoutThinking,
} from "./messages.js";
import { isJsonContainer, type JsonValue, printPythonJson, printPythonText } from "./python-json.js";
import { strip, stripEnd, stripStart } from "./python-text.js";
import type { RenderContext } from "./renderer.js";
import { VisionRenderer } from "./vision-renderer.js";
import {
  declareXmlTools,
  readXmlToolCall,
  writeXmlToolCall,
  XML_CALL_INSTRUCTION,
  XML_CALLS,
} from "./xml-tools.js";

/** Qwen3.5's turns: the prompt opens the block of thoughts, and calls have a tag for each argument. */
export class Qwen35Renderer extends VisionRenderer {
  protected override get prefill(): string {
    return this.thinking === "disabled" ? EMPTY_BLOCK : "<think>\n";
  }

  protected override imageTokens(image: SizedImage): number {
    return qwenImageTokens(image);
  }

  protected override readGiven({ content, ...rest }: Message): Message {
    if (typeof content !== "string") return { ...rest, content: trimmed(content) };
    const text = strip(content);
    return {
      ...rest,
      content: this.readsTags && rest.role === "assistant" ? inlineThinking(text, "\n") : text,
    };
  }

  /** Whether thoughts written in a text are read as thoughts. */
  protected get readsTags(): boolean {
    return true;
  }

  protected override keepsThinking(message: Message, context: RenderContext): boolean {
    return this.thinking === "preserved" || super.keepsThinking(message, context);
  }

  /** If thoughts are kept, each answer has a block of them, possibly empty. */
  protected override emptyBlock(message: Message, context: RenderContext): Markup {
    const hasBlock = this.isCookbook
      ? context.index > context.lastUserIndex
      : this.keepsThinking(message, context);
    return formatText(hasBlock && !hasThinking(message.content) ? EMPTY_BLOCK : "");
  }

  protected override writeThinking(thinking: string): Markup {
    return markup`<think>\n${strip(thinking)}\n</think>\n\n`;
  }

  protected override get callSeparator(): string {
    return "\n\n";
  }

  protected override writeToolCalls({ content, toolCalls = [] }: Message): Markup {
    const hasContent =
      typeof content === "string"
        ? content !== ""
        : withoutThinking(content).some((part) => part.type === "image" || strip(part.text) !== "");
    const calls = toolCalls.map((call) => writeXmlToolCall(call, (value) => this.writeArgument(value)));
    return markup`${hasContent ? "\n\n" : ""}${joinMarkup(calls, "\n")}`;
  }

  /** The template that keeps thoughts (Qwen3.6) writes everything but text as JSON. */
  protected writeArgument(value: JsonValue): string {
    if (this.thinking === "preserved" && !this.isCookbook && typeof value !== "string")
      return printPythonJson(value, { ensureAscii: false });
    return printArgument(value, this.isCookbook);
  }

  protected override readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return unframeThinking(parts);
  }

  protected override get ownCallForm(): OwnCallForm {
    return XML_CALLS;
  }

  protected override readToolCall(
    body: string,
    rawText: string,
    tools?: readonly ToolDeclaration[],
  ): ToolCall | UnparsedToolCall {
    return readXmlToolCall(body, rawText, tools);
  }

  protected override get toolPhrases(): readonly string[] {
    return [XML_CALL_INSTRUCTION];
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    const print = (tool: ToolDeclaration) =>
      this.isCookbook
        ? printPythonJson(tool)
        : printPythonJson({ type: "function", function: tool }, { ensureAscii: false });
    const declared = tools.length > 0 ? declareXmlTools(tools.map(print)) : "";
    const system = this.isCookbook ? systemPrompt : strip(systemPrompt);
    return [{ role: "system", content: [declared, system].filter(Boolean).join("\n\n") }];
  }
}

const EMPTY_BLOCK = "<think>\n\n</think>\n\n";

/** Objects and lists as JSON, all else as Python's text: `True`, `None`. */
export function printArgument(value: unknown, ensureAscii: boolean): string {
  return isJsonContainer(value) ? printPythonJson(value, { ensureAscii }) : printPythonText(value);
}

function trimmed(content: readonly ContentPart[]): readonly ContentPart[] {
  return trimVisible(trimVisible(content, stripStart).toReversed(), stripEnd).toReversed();
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
