import { TinkerError } from "../errors.js";
import { unframeThinking } from "./chatml.js";
import {
  type ContentPart,
  hasThinking,
  type Message,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  type UnparsedToolCall,
} from "./messages.js";
import { entriesOf, entryOf, printPythonJson, printPythonText } from "./python-json.js";
import { strip } from "./python-text.js";
import { printArgument } from "./qwen3-5.js";
import type { RenderContext, RenderedMessage, RendererTokenizer } from "./renderer.js";
import { VisionRenderer } from "./vision-renderer.js";
import { declareXmlTools, readXmlToolCall, writeXmlToolCall, xmlCallHead } from "./xml-tools.js";

const EMPTY_BLOCK = "<think></think>";

/** How a Nemotron renderer differs from the plain one. */
export interface NemotronOptions {
  /** Nemotron-3 Ultra and the 3.5 models, whose blocks of thoughts have no newline at their end. Default: false. */
  readonly isUltra?: boolean | undefined;
  /** Whether the model thinks before it answers or is told not to, and whether earlier turns keep their thoughts. */
  readonly thinking?: "enabled" | "disabled" | "preserved" | undefined;
  /** Said behind the user's last message, in words that the model knows. */
  readonly effort?: "low" | "efficient" | undefined;
}

/** Nemotron's turns: a system message always, a block of thoughts in every answer, tools declared as XML. */
export class Nemotron3Renderer extends VisionRenderer {
  readonly #options: NemotronOptions;

  constructor(tokenizer: RendererTokenizer, options: NemotronOptions = {}) {
    super(tokenizer);
    this.#options = options;
  }

  protected override get disablesThinking(): boolean {
    return this.#options.thinking === "disabled";
  }

  protected override get prefill(): string {
    return this.disablesThinking ? EMPTY_BLOCK : "<think>\n";
  }

  protected override get resultSeparator(): string {
    return "";
  }

  protected override get resultFrame(): readonly [string, string] {
    return ["<tool_response>\n", "\n</tool_response>\n"];
  }

  protected override imageTokens(): number {
    throw new TinkerError(
      "How many tokens Nemotron makes of an image is not known here, so it takes no images.",
    );
  }

  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    return messages[0]?.role === "system" ? messages : [{ role: "system", content: "" }, ...messages];
  }

  protected override trim(content: Message["content"]): Message["content"] {
    return typeof content === "string" ? strip(content) : content;
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    const { effort } = this.#options;
    const isLastOfUser = message.role === "user" && context.index === context.lastUserIndex;
    if (effort === undefined || !isLastOfUser) return super.renderMessage(message, context);
    const { content } = message;
    const suffix = `\n\n{reasoning effort: ${effort}}`;
    const told =
      typeof content === "string" ? content + suffix : [...content, { type: "text" as const, text: suffix }];
    return super.renderMessage({ ...message, content: told }, context);
  }

  protected override keepsThinking({ role }: Message, { index, lastUserIndex }: RenderContext): boolean {
    return role !== "assistant" || index >= lastUserIndex || this.#options.thinking === "preserved";
  }

  protected override emptyBlock(message: Message, context: RenderContext): string {
    const hasThoughts = hasThinking(message.content);
    if (hasThoughts && this.keepsThinking(message, context)) return "";
    // Learnt as it can be sampled: behind the block that the prompt opens.
    if (context.isLast && !context.isPrompt && !this.disablesThinking) return this.writeThinking("");
    const hasTextAlone = hasText(message) && (message.toolCalls ?? []).length === 0;
    return hasThoughts && hasTextAlone && !this.#options.isUltra ? `${EMPTY_BLOCK}\n` : EMPTY_BLOCK;
  }

  protected override writeThinking(thinking: string): string {
    return this.#options.isUltra ? `<think>\n${thinking}</think>` : `<think>\n${thinking}\n</think>\n`;
  }

  protected override writeToolCalls(message: Message, context: RenderContext): string {
    const { toolCalls = [] } = message;
    const block = this.emptyBlock(message, context) || this.writeThinking("");
    const bringsNewline = textOf(message) === "" && block.endsWith("\n");
    const calls = toolCalls.map((call) => `${writeXmlToolCall(call, printArgument)}\n`);
    return (bringsNewline ? "" : "\n") + calls.join("");
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
    const declared = tools.length > 0 ? declareXmlTools(tools.map(declareTool)) : "";
    return [{ role: "system", content: [systemPrompt, declared].filter(Boolean).join("\n\n") }];
  }
}

function hasText({ content }: Message): boolean {
  return typeof content !== "string" && content.some((part) => part.type === "text" && part.text !== "");
}

function declareTool(tool: ToolDeclaration): string {
  const { name, parameters = {} } = tool;
  const description = strip(tool.description ?? "");
  const properties = entryOf(parameters, "properties") ?? {};
  const required = entryOf(parameters, "required");
  return [
    "<function>",
    tag("name", name),
    ...(description === "" ? [] : [tag("description", description)]),
    "<parameters>",
    ...entriesOf(properties).flatMap(([property, schema]) => declareParameter(property, schema as object)),
    ...otherTags(parameters, ["type", "properties", "required"]),
    ...(required === undefined ? [] : [tag("required", printPythonJson(required))]),
    "</parameters>",
    ...otherTags(tool, ["type", "name", "description", "parameters"]),
    "</function>",
  ].join("\n");
}

function declareParameter(name: string, schema: object): readonly string[] {
  const [type, description, values] = ["type", "description", "enum"].map((key) => entryOf(schema, key));
  return [
    "<parameter>",
    tag("name", name),
    ...(type === undefined ? [] : [tag("type", printPythonText(type))]),
    ...(description === undefined ? [] : [tag("description", strip(String(description)))]),
    ...(values === undefined ? [] : [tag("enum", printPythonJson(values))]),
    ...otherTags(schema, ["name", "type", "description", "enum"]),
    "</parameter>",
  ];
}

function otherTags(schema: object, known: readonly string[]): readonly string[] {
  return entriesOf(schema)
    .filter(([key]) => !known.includes(key))
    .map(([key, value]) => tag(key, printArgument(value)));
}

function tag(name: string, text: string): string {
  return `<${name}>${text}</${name}>`;
}
