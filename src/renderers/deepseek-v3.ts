import { TinkerError } from "../errors.js";
import {
  contentParts,
  ensureText,
  hasThinking,
  type Message,
  refuseImages,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  type UnparsedToolCall,
} from "./messages.js";
import { readJson, thinkingBlocks, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import { printPythonJson } from "./python-json.js";
import { strip, stripEnd } from "./python-text.js";
import type { RenderContext, RenderedMessage, RendererTokenizer } from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";
import type { StreamParser } from "./stream-parser.js";

/** Begins every conversation of DeepSeek's models. */
export const BOS = "<｜begin▁of▁sentence｜>";
/** Ends every answer of DeepSeek's models. */
export const EOS = "<｜end▁of▁sentence｜>";
export const USER = "<｜User｜>";
export const ASSISTANT = "<｜Assistant｜>";
const CALLS_OPEN = "<｜tool▁calls▁begin｜>";
const CALLS_CLOSE = "<｜tool▁calls▁end｜>";
const CALL_OPEN = "<｜tool▁call▁begin｜>";
const CALL_CLOSE = "<｜tool▁call▁end｜>";
const SEPARATOR = "<｜tool▁sep｜>";
const RESULT_OPEN = "<｜tool▁output▁begin｜>";
const RESULT_CLOSE = "<｜tool▁output▁end｜>";

const CALLS = new RegExp(`${CALLS_OPEN}(.*?)${CALLS_CLOSE}`, "s");
/** With a name and arguments, or broken. */
const CALL = new RegExp(
  `${CALL_OPEN}(?:((?:(?!<｜tool▁).)+)${SEPARATOR}(.*?)|(?:(?!${CALL_OPEN}).)*?)${CALL_CLOSE}`,
  "gs",
);

/** DeepSeek V3.1, which thinks before it answers or not; where tools are called it never does by itself. */
export class DeepSeekV3Renderer extends StopTokenRenderer {
  readonly #thinks: boolean;

  constructor(
    tokenizer: RendererTokenizer,
    { thinks }: { /** Whether the prompt asks for thoughts. */ readonly thinks: boolean },
  ) {
    super(tokenizer);
    this.#thinks = thinks;
  }

  override get hasExtensionProperty(): boolean {
    return !this.#thinks;
  }

  override get stopSequences(): readonly number[] {
    return [this.token(EOS)];
  }

  protected override get bosTokens(): readonly number[] {
    return [this.token(BOS)];
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    const { role, content } = message;
    switch (role) {
      case "system":
        if (context.index === 0) return { header: [], output: [this.encode(ensureText(content))] };
        throw new TinkerError("DeepSeek V3 knows a system message as the first message only.");
      case "user":
        return { header: this.encode(USER), output: [this.encode(ensureText(content))] };
      case "tool":
        return {
          header: this.encode(RESULT_OPEN),
          output: [this.encode(ensureText(content) + RESULT_CLOSE)],
        };
      case "assistant":
        return this.#renderAnswer(message, context);
      default:
        throw new TinkerError(`DeepSeek V3 has no role ${JSON.stringify(role)}.`);
    }
  }

  /** Thoughts are written in the answer being produced alone; an older one begins where they ended. */
  #renderAnswer({ content, toolCalls }: Message, { isLast, previous }: RenderContext): RenderedMessage {
    const keepsThoughts = this.#thinks && isLast;
    const isFirstStep = previous?.role !== "tool";
    const text = keepsThoughts ? written(content, isFirstStep) : withoutThoughts(content);
    return {
      header: isFirstStep ? this.encode(ASSISTANT + (keepsThoughts ? "" : "</think>")) : [],
      output: [[...this.encode(text + writtenCalls(toolCalls ?? [])), this.token(EOS)]],
    };
  }

  protected override promptSuffix(role: string, context: RenderContext): readonly number[] {
    const header = super.promptSuffix(role, context);
    return this.#thinks && role === "assistant" && header.length > 0
      ? [...header, ...this.encode("<think>")]
      : header;
  }

  /** Behind a tool's result the prompt does not open thoughts. */
  override streamParser(answered: readonly Message[] = [], stopTexts: readonly string[] = []): StreamParser {
    return this.#thinks && answered.at(-1)?.role === "tool"
      ? new DeepSeekV3Renderer(this.tokenizer, { thinks: false }).streamParser(answered, stopTexts)
      : super.streamParser(answered, stopTexts);
  }

  override get callSign(): string {
    return CALLS_OPEN;
  }

  protected override get streamPrefix(): string {
    return this.#thinks ? "<think>" : "";
  }

  protected override readMessage(text: string): Message {
    return readAnswer(text);
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [{ role: "system", content: systemPrompt + (tools.length > 0 ? toolsText(tools) : "") }];
  }
}

function written(content: Message["content"], needsThoughts: boolean): string {
  refuseImages(content);
  const text = contentParts(content)
    .map((part) => {
      if (part.type === "thinking") return `<think>${part.thinking}</think>`;
      return part.type === "text" ? part.text : "";
    })
    .join("");
  return needsThoughts && !hasThinking(content) ? `<think></think>${text}` : text;
}

function withoutThoughts(content: Message["content"]): string {
  refuseImages(content);
  if (typeof content === "string") return content.replace(/<think>.*?<\/think>/gs, "");
  return textOf({ content });
}

function writtenCalls(calls: readonly ToolCall[]): string {
  if (calls.length === 0) return "";
  const each = calls.map((call) => CALL_OPEN + call.name + SEPARATOR + call.arguments + CALL_CLOSE);
  return CALLS_OPEN + each.join("") + CALLS_CLOSE;
}

function readAnswer(text: string): Message {
  const section = CALLS.exec(text)?.[1] ?? "";
  const calls = Array.from(section.matchAll(CALL), readCall);
  const open =
    unterminatedToolBlock(text, CALLS_OPEN, CALLS_CLOSE) ??
    unterminatedToolBlock(text, CALL_OPEN, CALL_CLOSE);
  if (open !== undefined) calls.push(open);
  const content = calls.length > 0 ? withoutCalls(text) : text;
  return { role: "assistant", content: thinkingBlocks(content) ?? content, ...toolCallFields(calls) };
}

function readCall([rawText, name, given]: RegExpExecArray): ToolCall | UnparsedToolCall {
  if (name === undefined) return { rawText, error: `a call must be a name, ${SEPARATOR} and arguments` };
  const json = strip(given!);
  const { error } = readJson(json);
  return error === undefined ? { name, arguments: json } : { rawText, error };
}

function withoutCalls(text: string): string {
  const around = text.split(new RegExp(`${CALLS_OPEN}.*?${CALLS_CLOSE}`, "s"));
  const last = around.pop()!;
  return strip([...around.map((piece) => stripEnd(piece)), last].join(""));
}

function toolsText(tools: readonly ToolDeclaration[]): string {
  const declarations = tools.map(
    ({ name, description, parameters }) =>
      `### ${name}\nDescription: ${description}\n\nParameters: ${printPythonJson(parameters)}`,
  );
  return `

## Tools
You have access to the following tools:

${declarations.join("\n")}

IMPORTANT: ALWAYS adhere to this exact format for tool use:
${CALLS_OPEN}${CALL_OPEN}tool_call_name${SEPARATOR}tool_call_arguments${CALL_CLOSE}${CALLS_CLOSE}

Where:
- \`tool_call_name\` must be an exact match to one of the available tools
- \`tool_call_arguments\` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces`;
}
