import { TinkerError } from "../errors.js";
import { type CallForm, jsonArguments, plain, sign } from "./answer-shape.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
import {
  contentParts,
  ensureText,
  hasThinking,
  inlineThinking,
  type Message,
  refuseImages,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  type UnparsedToolCall,
} from "./messages.js";
import { readJson, thinkingBlocks, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import { printPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";
import type { RenderContext, RenderedMessage } from "./renderer.js";
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
/** A call with a name and arguments, or a malformed one. */
const CALL = new RegExp(
  `${CALL_OPEN}(?:((?:(?!<｜tool▁).)+)${SEPARATOR}(.*?)|(?:(?!${CALL_OPEN}).)*?)${CALL_CLOSE}`,
  "gs",
);

/** DeepSeek V3.1, with or without thoughts; after tool calls it never begins to think by itself. */
export class DeepSeekV3Renderer extends StopTokenRenderer {
  get #thinks(): boolean {
    return this.thinking === "enabled";
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
        if (context.index === 0)
          return { header: [], output: [this.encode(this.textMarkup(message, ensureText(content)))] };
        throw new TinkerError("DeepSeek V3 knows a system message as the first message only.");
      case "user":
        return { header: this.encode(USER), output: [this.plainTokens(ensureText(content))] };
      case "tool":
        return {
          header: this.encode(RESULT_OPEN),
          output: [this.encode(markup`${ensureText(content)}${formatText(RESULT_CLOSE)}`)],
        };
      case "assistant":
        return this.#renderAnswer(message, context);
      default:
        throw new TinkerError(`DeepSeek V3 has no role ${JSON.stringify(role)}.`);
    }
  }

  /** Only the newest answer has thoughts; older answers begin where theirs ended. */
  #renderAnswer({ content, toolCalls }: Message, context: RenderContext): RenderedMessage {
    const { isLast, isPrompt, index, messages, previous } = context;
    const isHistory = isPrompt && index < messages.length && !this.isCookbook;
    const keepsThoughts = this.#thinks && isLast && !isHistory;
    const isFirstStep = previous?.role !== "tool";
    const text = keepsThoughts ? written(content, isFirstStep) : withoutThoughts(content);
    return {
      header: isFirstStep ? this.encode(ASSISTANT + (keepsThoughts ? "" : "</think>")) : [],
      output: [[...this.encode(markup`${text}${writtenCalls(toolCalls ?? [])}`), this.token(EOS)]],
    };
  }

  protected override promptSuffix(role: string, context: RenderContext): readonly number[] {
    const header = super.promptSuffix(role, context);
    return this.#thinks && role === "assistant" && header.length > 0
      ? [...header, ...this.encode("<think>")]
      : header;
  }

  /** After a tool's result the prompt does not open thoughts. */
  override streamParser(
    answered: readonly Message[] = [],
    stopTexts: readonly string[] = [],
    tools: readonly ToolDeclaration[] = [],
  ): StreamParser {
    return this.#thinks && answered.at(-1)?.role === "tool"
      ? new DeepSeekV3Renderer(this.tokenizer, { thinking: "disabled" }).streamParser(
          answered,
          stopTexts,
          tools,
        )
      : super.streamParser(answered, stopTexts, tools);
  }

  override get callSign(): string {
    return CALLS_OPEN;
  }

  override get callForm(): CallForm {
    return {
      thoughtsEnd: this.#thinks ? "</think>" : undefined,
      frame: [CALLS_OPEN, CALLS_CLOSE],
      between: "",
      head: (name) => [sign(CALL_OPEN), plain(name), sign(SEPARATOR)],
      arguments: jsonArguments,
      tail: CALL_CLOSE,
      takesPrefill: true,
    };
  }

  protected override get streamPrefix(): string {
    return this.#thinks ? "<think>" : "";
  }

  protected override readMessage(text: string): Message {
    return readAnswer(text);
  }

  protected override get toolPhrases(): readonly string[] {
    return [CALL_INSTRUCTION];
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [
      { role: "system", content: systemPrompt + (tools.length > 0 ? toolsText(tools, this.isCookbook) : "") },
    ];
  }
}

function written(content: Message["content"], needsThoughts: boolean): Markup {
  refuseImages(content);
  const parts = contentParts(inlineThinking(content));
  const text = joinMarkup(
    parts.map((part) => {
      if (part.type === "thinking") return markup`<think>${part.thinking}</think>`;
      return part.type === "text" ? part.text : "";
    }),
  );
  return needsThoughts && !hasThinking(parts) ? markup`<think></think>${text}` : text;
}

function withoutThoughts(content: Message["content"]): Markup {
  refuseImages(content);
  return markup`${textOf({ content: inlineThinking(content) })}`;
}

function writtenCalls(calls: readonly ToolCall[]): Markup {
  if (calls.length === 0) return formatText("");
  const each = calls.map(
    ({ name, arguments: given }) =>
      markup`${formatText(CALL_OPEN)}${name}${formatText(SEPARATOR)}${given}${formatText(CALL_CLOSE)}`,
  );
  return markup`${formatText(CALLS_OPEN)}${joinMarkup(each)}${formatText(CALLS_CLOSE)}`;
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
  return text.replace(new RegExp(`${CALLS_OPEN}.*?${CALLS_CLOSE}`, "gs"), "");
}

function toolsText(tools: readonly ToolDeclaration[], ensureAscii: boolean): string {
  const declarations = tools.map(
    ({ name, description, parameters }) =>
      `### ${name}\nDescription: ${description}\n\nParameters: ${printPythonJson(parameters, { ensureAscii })}`,
  );
  return `

## Tools
You have access to the following tools:

${declarations.join("\n")}

${CALL_INSTRUCTION}`;
}

const CALL_INSTRUCTION = `IMPORTANT: ALWAYS adhere to this exact format for tool use:
${CALLS_OPEN}${CALL_OPEN}tool_call_name${SEPARATOR}tool_call_arguments${CALL_CLOSE}${CALLS_CLOSE}

Where:
- \`tool_call_name\` must be an exact match to one of the available tools
- \`tool_call_arguments\` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces`;
