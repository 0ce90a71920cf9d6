import { TinkerError } from "../errors.js";
import {
  type CallForm,
  type MemberForm,
  plain,
  sign,
  taggedArguments,
  textArgumentsOf,
} from "./answer-shape.js";
import { joinMarkup, type Markup, markup } from "./markup.js";
import {
  ensureText,
  inlineThinking,
  type Message,
  refuseImages,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
  type UnparsedToolCall,
} from "./messages.js";
import {
  readJson,
  readJsonToolCall,
  type textBeforeStop,
  thinkingAndToolBlocks,
  toolCallFields,
  unterminatedToolBlock,
} from "./parsing.js";
import { isJsonObject, type JsonValue, printPythonJson } from "./python-json.js";
import { SPACE, strip } from "./python-text.js";
import type { RenderContext, RenderedMessage, RendererTokenizer } from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";
import type { ThinkingMode } from "./thinking.js";

const END_OF_TEXT = "<|endoftext|>";
const CALL_OPEN = "<tool_call>";
const CALL_CLOSE = "</tool_call>";
const MEMBERS: MemberForm = {
  before: "<arg_key>",
  asText: "</arg_key><arg_value>",
  asJson: "</arg_key><arg_value>",
  behind: "</arg_value>",
  separator: "",
  without: ["<arg_key>", "</arg_value>", CALL_OPEN, CALL_CLOSE],
};
const ROLES: ReadonlyMap<string, string> = new Map([
  ["system", "<|system|>"],
  ["user", "<|user|>"],
  ["assistant", "<|assistant|>"],
  ["tool", "<|observation|>"],
]);
const FUNCTION_NAME = /^[\p{L}\p{N}_.-]+/u;
const ARGUMENT = new RegExp(`<arg_key>(.*?)</arg_key>${SPACE}*<arg_value>(.*?)</arg_value>`, "gs");

/** GLM-5.3, which always thinks, with a given effort, and remembers all its thoughts. */
export class Glm53Renderer extends StopTokenRenderer {
  readonly #effort: string;

  constructor(tokenizer: RendererTokenizer, { effort = "max" }: ThinkingMode = {}) {
    super(tokenizer, { thinking: "preserved" });
    this.#effort = effort.charAt(0).toUpperCase() + effort.slice(1);
  }

  override get hasExtensionProperty(): boolean {
    return true;
  }

  override get stopSequences(): readonly number[] {
    return ["<|user|>", "<|observation|>", END_OF_TEXT].map((text) => this.token(text));
  }

  protected override get bosTokens(): readonly number[] {
    return this.encode(`[gMASK]<sop><|system|>Reasoning Effort: ${this.#effort}`);
  }

  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    return messages.flatMap((message, index) => {
      if (message.role !== "tool") return [message];
      return messages[index - 1]?.role === "tool" ? [] : resultsInOrder(messages, index);
    });
  }

  protected override renderMessage(message: Message, context: RenderContext): RenderedMessage {
    const { role } = message;
    if (role === "assistant") return this.#renderAnswer(message, context);
    const text = this.textMarkup(message, visibleText(message));
    return {
      header: beginsInTheOneBefore(message, context.previous) ? [] : this.promptSuffix(role),
      output: [this.encode(role === "tool" ? markup`<tool_response>${text}</tool_response>` : text)],
    };
  }

  /** An answer ends with the token of the next role, which is therefore trained on with the answer. */
  #renderAnswer(message: Message, { isLast, next }: RenderContext): RenderedMessage {
    const { thinking, text } = thoughtsAndText(message);
    const calls = (message.toolCalls ?? []).map(writtenCall);
    const tokens = this.encode(markup`${thinking}</think>${strip(text)}${joinMarkup(calls)}`);
    const end = [this.token(endOf(message))];
    return {
      header: this.promptSuffix("assistant"),
      output: [next !== undefined && beginsInTheOneBefore(next, message) ? [...tokens, ...end] : tokens],
      ...(isLast && { stopOverlap: end }),
    };
  }

  protected override promptSuffix(role: string): readonly number[] {
    const token = ROLES.get(role);
    if (token === undefined) throw new TinkerError(`GLM-5.3 has no role ${JSON.stringify(role)}.`);
    return this.encode(role === "assistant" ? `${token}<think>` : token);
  }

  protected override get toolPhrases(): readonly string[] {
    return [CALL_INSTRUCTION];
  }

  override get callSign(): string {
    return CALL_OPEN;
  }

  override get callForm(): CallForm {
    return {
      thoughtsEnd: "</think>",
      frame: ["", ""],
      between: "",
      head: (name) => [sign(CALL_OPEN), plain(name)],
      arguments: (tool) => taggedArguments(tool, MEMBERS),
      tail: CALL_CLOSE,
      takesPrefill: true,
    };
  }

  protected override get streamPrefix(): string {
    return "<think>";
  }

  protected override readMessage(text: string, tools?: readonly ToolDeclaration[]): Message {
    return readAnswer(text, tools);
  }

  protected override answerText(tokens: ArrayLike<number>): ReturnType<typeof textBeforeStop> {
    const { text, termination } = super.answerText(tokens);
    const hasEnd = Array.from(tokens).includes(this.token(END_OF_TEXT));
    return { text, termination: hasEnd && termination === "stop_sequence" ? "eos" : termination };
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [
      ...(tools.length === 0 ? [] : [{ role: "system", content: toolsText(tools) }]),
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
    ];
  }
}

/** The consecutive results, in the order of their calls if ids determine it. */
function resultsInOrder(messages: readonly Message[], start: number): readonly Message[] {
  const end = messages.findIndex(({ role }, index) => index > start && role !== "tool");
  const results = messages.slice(start, end === -1 ? undefined : end);
  const answered = messages[start - 1];
  const callIds = answered?.role === "assistant" ? (answered.toolCalls ?? []).map(({ id }) => id) : [];
  const resultIds = results.map(({ toolCallId }) => toolCallId);
  const isCertain =
    areDistinct(callIds) && areDistinct(resultIds) && resultIds.every((id) => callIds.includes(id));
  if (!isCertain) return results;
  return results.sort((a, b) => callIds.indexOf(a.toolCallId) - callIds.indexOf(b.toolCallId));
}

function areDistinct(ids: readonly (string | undefined)[]): boolean {
  return ids.every(Boolean) && new Set(ids).size === ids.length;
}

/** The token that the model writes when its answer is complete. */
function endOf({ toolCalls }: Message): string {
  return toolCalls?.length ? "<|observation|>" : "<|user|>";
}

/** Whether the previous message already ends with this message's role. */
function beginsInTheOneBefore({ role }: Message, previous: Message | undefined): boolean {
  if (previous?.role === "assistant") return ROLES.get(role) === endOf(previous);
  return role === "tool" && previous?.role === "tool";
}

function visibleText({ content }: Message): string {
  return typeof content === "string" ? content : content.map((part) => ensureText([part])).join("");
}

/** Thoughts are parts, or stand in the text between their tags. */
function thoughtsAndText(message: Message): { readonly thinking: string; readonly text: string } {
  refuseImages(message.content);
  const content = inlineThinking(message.content);
  return { thinking: thinkingOf({ content }), text: textOf({ content }) };
}

function writtenCall({ name, arguments: given }: ToolCall): Markup {
  const { value, error } = given === "" ? { value: new Map() } : readJson(given);
  if (!isJsonObject(value)) {
    throw new TinkerError(
      `The arguments of a call of ${name} must be a JSON object${error ? `: ${error}` : ""}.`,
    );
  }
  const pairs = Array.from(value, ([key, each]) => {
    const text = typeof each === "string" ? each : printPythonJson(each, { ensureAscii: false });
    return markup`<arg_key>${key}</arg_key><arg_value>${text}</arg_value>`;
  });
  return markup`<tool_call>${name}${joinMarkup(pairs)}</tool_call>`;
}

function readAnswer(text: string, tools?: readonly ToolDeclaration[]): Message {
  const read = (body: string, rawText: string) => readCall(body, rawText, tools);
  const { parts, calls } = thinkingAndToolBlocks(text, read) ?? { parts: text, calls: [] };
  const open = unterminatedToolBlock(text, CALL_OPEN, CALL_CLOSE);
  return {
    role: "assistant",
    content: parts,
    ...toolCallFields(open === undefined ? calls : [...calls, open]),
  };
}

/** A call in GLM's tags, or as JSON, which some models write. Arguments that are texts by their schema stay unchanged. */
function readCall(
  given: string,
  rawText: string,
  tools: readonly ToolDeclaration[] = [],
): ToolCall | UnparsedToolCall {
  const json = readJsonToolCall(given, rawText);
  if (!("rawText" in json)) return json;
  const text = strip(given);
  const name = FUNCTION_NAME.exec(text)?.[0];
  if (name === undefined) return { rawText, error: "a call must begin with the name of its function" };
  const body = text.slice(name.length);
  if (strip(body.replace(ARGUMENT, "")) !== "")
    return { rawText, error: "a call has text outside of its arguments" };
  const values = new Map<string, JsonValue>();
  const texts = textArgumentsOf(name, tools);
  for (const [, key, value] of body.matchAll(ARGUMENT)) {
    if (strip(key!) === "") return { rawText, error: "an argument of a call has no name" };
    const json = texts.has(strip(key!)) ? undefined : readJson(value!).value;
    values.set(strip(key!), json === undefined ? value! : json);
  }
  return { name, arguments: printPythonJson(values) };
}

function toolsText(tools: readonly ToolDeclaration[]): string {
  const declarations = tools.map((tool) => `${printPythonJson(tool, { ensureAscii: false })}\n`);
  return `
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${declarations.join("")}</tools>

${CALL_INSTRUCTION}`;
}

const CALL_INSTRUCTION = `For each function call, output the function name and arguments within the following XML format:
<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>`;
