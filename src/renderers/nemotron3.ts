import { TinkerError } from "../errors.js";
import { type OwnCallForm, unframeThinking } from "./chatml.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
import {
  type ContentPart,
  hasThinking,
  inlineThinking,
  type Message,
  refuseImages,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
  type UnparsedToolCall,
} from "./messages.js";
import { entriesOf, entryOf, type JsonValue, printPythonJson, printPythonText } from "./python-json.js";
import { strip, stripEnd } from "./python-text.js";
import { printArgument } from "./qwen3-5.js";
import type { RenderContext, RenderedMessage, RendererTokenizer } from "./renderer.js";
import type { ReasoningEffort, ThinkingMode } from "./thinking.js";
import { VisionRenderer, type WrittenPart } from "./vision-renderer.js";
import {
  declareXmlTools,
  readXmlToolCall,
  writeXmlToolCall,
  XML_CALL_INSTRUCTION,
  XML_CALLS,
} from "./xml-tools.js";

const EMPTY_BLOCK = "<think></think>";

/** How a Nemotron renderer differs from the plain one. */
export interface NemotronOptions extends ThinkingMode {
  /** Nemotron-3 Ultra and the 3.5 models, whose blocks of thoughts have no newline at their end. Default: false. */
  readonly isUltra?: boolean | undefined;
}

/** Efforts that the prompt states after the user's last message, in words that the model knows. */
const EFFORTS: Readonly<Partial<Record<ReasoningEffort, string>>> = { low: "low", medium: "efficient" };

/** Nemotron's turns: a system message always, a block of thoughts in every answer, tools declared as XML. */
export class Nemotron3Renderer extends VisionRenderer {
  readonly #effort: string | undefined;
  readonly #isUltra: boolean;

  constructor(tokenizer: RendererTokenizer, options: NemotronOptions = {}) {
    const { effort, isUltra = false } = options;
    super(tokenizer, options);
    this.#effort = effort && EFFORTS[effort];
    this.#isUltra = isUltra;
  }

  protected override get prefill(): string {
    return this.thinking === "disabled" ? EMPTY_BLOCK : "<think>\n";
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

  protected override readGiven(message: Message): Message {
    const { role, content } = message;
    if (this.isCookbook)
      return typeof content === "string" ? { ...message, content: strip(content) } : message;
    return role === "assistant" ? { ...message, content: inlineThinking(content) } : message;
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    const isLastOfUser = message.role === "user" && context.index === context.lastUserIndex;
    if (this.#effort === undefined || !isLastOfUser) return super.renderMessage(message, context);
    const suffix = `\n\n{reasoning effort: ${this.#effort}}`;
    const content =
      typeof message.content === "string"
        ? message.content + suffix
        : [...message.content, { type: "text" as const, text: suffix }];
    return super.renderMessage({ ...message, content }, context);
  }

  protected override keepsThinking({ role }: Message, { index, lastUserIndex }: RenderContext): boolean {
    return role !== "assistant" || index > lastUserIndex || this.thinking === "preserved";
  }

  /** In the Python cookbook's format; in the model's own the block is part of the text. */
  protected override emptyBlock(message: Message, context: RenderContext): Markup {
    const hasThoughts = hasThinking(message.content);
    if (!this.isCookbook || (hasThoughts && this.keepsThinking(message, context))) return formatText("");
    if (context.isLast && !context.isPrompt && this.thinking !== "disabled") return this.writeThinking("");
    const { content, toolCalls = [] } = message;
    const hasTextAlone = typeof content !== "string" && textOf(message) !== "" && toolCalls.length === 0;
    return formatText(hasThoughts && hasTextAlone && !this.#isUltra ? `${EMPTY_BLOCK}\n` : EMPTY_BLOCK);
  }

  /** Every answer has a block of thoughts; white space around the answer is cut off. */
  protected override writeParts(message: Message, context: RenderContext): readonly WrittenPart[] {
    if (this.isCookbook || message.role !== "assistant") return super.writeParts(message, context);
    refuseImages(message.content);
    const hasCalls = (message.toolCalls ?? []).length > 0;
    const isCut = hasCalls && !this.keepsThinking(message, context);
    const cut = isCut ? (this.#isUltra ? String : strip) : stripEnd;
    const text = cut(textOf(message));
    const block = this.#block(message, context, text !== "" && !hasCalls);
    // White space at the end of the answer is cut off, also that of the block.
    const newline = text === "" && block.toString().endsWith("\n");
    return [
      markup`${newline ? block.withoutLast() : block}${text}`,
      hasCalls ? this.writeToolCalls(message, context) : formatText(""),
      formatText("<|im_end|>"),
    ];
  }

  /** The kept thoughts, or an empty block. */
  #block(message: Message, context: RenderContext, isBeforeTextAlone: boolean): Markup {
    const thinking = thinkingOf(message);
    const hasThoughts = strip(thinking) !== "";
    if (hasThoughts && this.keepsThinking(message, context)) return this.writeThinking(thinking);
    const newline = this.#isUltra ? "" : "\n";
    // Trained on as it is sampled: after the block that the prompt opens.
    if (context.isLast && !context.isPrompt && this.thinking !== "disabled")
      return formatText(`<think>\n</think>${newline}`);
    return formatText(hasThoughts && isBeforeTextAlone ? `${EMPTY_BLOCK}${newline}` : EMPTY_BLOCK);
  }

  protected override writeThinking(thinking: string): Markup {
    return this.#isUltra ? markup`<think>\n${thinking}</think>` : markup`<think>\n${thinking}\n</think>\n`;
  }

  protected override writeToolCalls(message: Message, context: RenderContext): Markup {
    const { toolCalls = [] } = message;
    const print = (value: JsonValue) => printArgument(value, this.isCookbook);
    return markup`${this.#hasNewlineBeforeCalls(message, context) ? "" : "\n"}${joinMarkup(
      toolCalls.map((call) => writeXmlToolCall(call, print)),
      "\n",
    )}\n`;
  }

  /** In the Python cookbook's format a block of thoughts without text behind it brings the newline before the calls. */
  #hasNewlineBeforeCalls(message: Message, context: RenderContext): boolean {
    if (!this.isCookbook || textOf(message) !== "") return false;
    const block = this.emptyBlock(message, context);
    return (block.isEmpty ? this.writeThinking("") : block).toString().endsWith("\n");
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
    const declared =
      tools.length > 0 ? declareXmlTools(tools.map((tool) => declareTool(tool, this.isCookbook))) : "";
    return [{ role: "system", content: [systemPrompt, declared].filter(Boolean).join("\n\n") }];
  }
}

function declareTool(tool: ToolDeclaration, isCookbook: boolean): string {
  const { name, parameters = {} } = tool;
  const description = strip(tool.description ?? "");
  const properties = entryOf(parameters, "properties") ?? {};
  const required = entryOf(parameters, "required");
  return [
    "<function>",
    tag("name", name),
    ...(description === "" && isCookbook ? [] : [tag("description", description)]),
    "<parameters>",
    ...entriesOf(properties).flatMap(([property, schema]) =>
      declareParameter(property, schema as object, isCookbook),
    ),
    ...otherTags(parameters, ["type", "properties", "required"], isCookbook),
    ...(required === undefined
      ? []
      : [tag("required", printPythonJson(required, { ensureAscii: isCookbook }))]),
    "</parameters>",
    ...otherTags(tool, ["type", "name", "description", "parameters"], isCookbook),
    "</function>",
  ].join("\n");
}

function declareParameter(name: string, schema: object, isCookbook: boolean): readonly string[] {
  const [type, description, values] = ["type", "description", "enum"].map((key) => entryOf(schema, key));
  return [
    "<parameter>",
    tag("name", name),
    ...(type === undefined ? [] : [tag("type", printPythonText(type))]),
    ...(description === undefined ? [] : [tag("description", strip(String(description)))]),
    ...(values === undefined ? [] : [tag("enum", printPythonJson(values, { ensureAscii: isCookbook }))]),
    ...otherTags(schema, ["name", "type", "description", "enum"], isCookbook),
    "</parameter>",
  ];
}

function otherTags(schema: object, known: readonly string[], isCookbook: boolean): readonly string[] {
  return entriesOf(schema)
    .filter(([key]) => !known.includes(key))
    .map(([key, value]) => tag(key, printArgument(value, isCookbook)));
}

function tag(name: string, text: string): string {
  return `<${name}>${text}</${name}>`;
}
