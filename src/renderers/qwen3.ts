import { TinkerError } from "../errors.js";
import type { CallForm } from "./answer-shape.js";
import { unframeThinking, writeJsonToolCalls } from "./chatml.js";
import { qwenImageTokens, type SizedImage } from "./image-size.js";
import { formatText, type Markup, markup } from "./markup.js";
import {
  type ContentPart,
  contentParts,
  hasThinking,
  inlineThinking,
  type Message,
  type ToolDeclaration,
  thinkingOf,
  withoutThinking,
} from "./messages.js";
import { printPythonJson } from "./python-json.js";
import { strip, stripStart } from "./python-text.js";
import type { RenderContext, RenderedMessage } from "./renderer.js";
import { VisionRenderer } from "./vision-renderer.js";

/** Qwen3's turns: the one being produced begins with a block of thoughts, earlier ones lose theirs. */
export class Qwen3Renderer extends VisionRenderer {
  override get hasExtensionProperty(): boolean {
    return this.thinking === "absent";
  }

  protected override get prefill(): string {
    return this.thinking === "disabled" ? EMPTY_BLOCK : "";
  }

  protected get takesImages(): boolean {
    return false;
  }

  protected override imageTokens(image: SizedImage): number {
    return qwenImageTokens(image);
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    if (!this.takesImages && contentParts(message.content).some(({ type }) => type === "image"))
      throw new TinkerError("Qwen3's text models take no images; those of Qwen3-VL and Qwen3.5 do.");
    const isUnasked = message.role === "assistant" && context.isLast && context.lastUserIndex < 0;
    if (this.thinking === "disabled" && isUnasked && message.content.length > 0)
      throw new TinkerError(NO_USER);
    const isLearnt = message.role === "assistant" && context.isLast && !context.isPrompt;
    if (this.#dropsThoughts && isLearnt && thinkingOf(message) !== "") throw new TinkerError(NO_THOUGHTS);
    return super.renderMessage(message, context);
  }

  /** Templates of models without thinking have no place for thoughts. */
  get #dropsThoughts(): boolean {
    return this.thinking === "absent" && !this.isCookbook;
  }

  protected override keepsThinking(message: Message, context: RenderContext): boolean {
    return super.keepsThinking(message, context) && !(this.#dropsThoughts && message.role === "assistant");
  }

  /** Thoughts come before the text, whose first newlines give way to those of their frame. */
  protected override readGiven(message: Message, context: RenderContext): Message {
    if (message.role !== "assistant" || this.thinking === "absent") return message;
    const content = inlineThinking(message.content, "\n");
    const keeps = this.keepsThinking(message, context);
    const beginsWithBlock = !this.emptyBlock({ ...message, content }, context).isEmpty;
    let isAfterBlock = beginsWithBlock;
    const parts = contentParts(content).map((part): ContentPart => {
      const text = part.type === "text" && isAfterBlock ? stripStart(part.text, "\n") : undefined;
      const isNothing = text === "" && (beginsWithBlock || !this.isCookbook);
      isAfterBlock = isNothing || (keeps && part.type === "thinking");
      return text === undefined ? part : { type: "text", text };
    });
    const isEmptyThought = (part: ContentPart) => part.type === "thinking" && part.thinking === "";
    // The template writes an empty block in the last message only.
    const dropsEmpty = !this.isCookbook && !context.isLast;
    return { ...message, content: dropsEmpty ? parts.filter((part) => !isEmptyThought(part)) : parts };
  }

  protected override emptyBlock({ content }: Message, { isLast, lastUserIndex }: RenderContext): Markup {
    const isProduced = isLast && lastUserIndex >= 0 && this.thinking !== "absent";
    return formatText(isProduced && !hasThinking(content) ? EMPTY_BLOCK : "");
  }

  protected override get putsBlockInOutput(): boolean {
    return true;
  }

  protected override writeThinking(thinking: string): Markup {
    if (this.thinking === "absent") return markup`<think>${thinking}</think>`;
    return markup`<think>\n${stripNewlines(thinking)}\n</think>\n\n`;
  }

  /** Whether thoughts without text are followed by a newline before calls. */
  protected get separatesCallsFromThoughts(): boolean {
    return this.thinking === "absent";
  }

  protected override writeToolCalls(message: Message, context: RenderContext): Markup {
    const parts = contentParts(message.content);
    const isShown = this.separatesCallsFromThoughts && this.keepsThinking(message, context);
    const isEmpty = (isShown ? parts : withoutThinking(parts)).every(
      (part) => part.type === "text" && part.text === "",
    );
    return markup`${isEmpty ? "" : "\n"}${writeJsonToolCalls(message, this.isCookbook)}`;
  }

  /** A turn that thinks begins with a block of thoughts, also where there are none. */
  override get callForm(): CallForm {
    const form = super.callForm;
    const isBegun = this.thinking === "enabled" && this.streamPrefix === "";
    return isBegun ? { ...form, frame: [EMPTY_BLOCK, ""] } : form;
  }

  protected override readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return this.thinking === "absent" ? parts : unframeThinking(parts, stripNewlines);
  }

  protected override get toolPhrases(): readonly string[] {
    return [CALL_INSTRUCTION];
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt?: string): readonly Message[] {
    const declared = tools
      .map((tool) => printPythonJson({ type: "function", function: tool }, { ensureAscii: this.isCookbook }))
      .join("\n");
    const text = `# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${declared}
</tools>

${CALL_INSTRUCTION}`;
    // The template separates the tools from a system message even if that is empty.
    const system = this.isCookbook ? systemPrompt || undefined : systemPrompt;
    const parts = [system, tools.length > 0 ? text : undefined].filter((part) => part !== undefined);
    return [{ role: "system", content: parts.join("\n\n") }];
  }
}

/** Qwen3-VL's turns: as Qwen3's, with images, and the prompt opens the block of thoughts. */
export class Qwen3VlRenderer extends Qwen3Renderer {
  protected override get prefill(): string {
    return this.thinking === "enabled" && !this.isCookbook ? "<think>\n" : "";
  }

  protected override get takesImages(): boolean {
    return true;
  }

  override get hasExtensionProperty(): boolean {
    return super.hasExtensionProperty && !this.isCookbook;
  }

  /** The Python cookbook has neither blocks without thoughts nor newlines around thoughts here. */
  protected override readGiven(message: Message, context: RenderContext): Message {
    return this.isCookbook ? message : super.readGiven(message, context);
  }

  protected override emptyBlock(message: Message, context: RenderContext): Markup {
    return this.isCookbook ? formatText("") : super.emptyBlock(message, context);
  }

  protected override writeThinking(thinking: string): Markup {
    return this.isCookbook ? markup`<think>${thinking}</think>` : super.writeThinking(thinking);
  }

  protected override get separatesCallsFromThoughts(): boolean {
    return this.isCookbook || super.separatesCallsFromThoughts;
  }
}

const EMPTY_BLOCK = "<think>\n\n</think>\n\n";

const CALL_INSTRUCTION = `For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>`;

const NO_USER =
  "This renderer's prompt closes the block of thoughts, which Qwen3's format writes behind a message of the user " +
  "only, and the conversation has none. Add a message of the user, or take the renderer that thinks.";

const NO_THOUGHTS =
  "This model does not think, and its format has no thoughts to train on. Leave the thinking parts out of the answer, " +
  "or take a model that thinks.";

function stripNewlines(text: string): string {
  return strip(text, "\n");
}
