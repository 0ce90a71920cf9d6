import { TinkerError } from "../errors.js";
import {
  ensureText,
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

const END_OF_TEXT = "<|endoftext|>";
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

  constructor(tokenizer: RendererTokenizer, { effort }: { readonly effort: "Low" | "High" | "Max" }) {
    super(tokenizer);
    this.#effort = effort;
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
    const text = visibleText(message);
    return {
      header: beginsInTheOneBefore(message, context.previous) ? [] : this.promptSuffix(role),
      output: [this.encode(role === "tool" ? `<tool_response>${text}</tool_response>` : text)],
    };
  }

  /** An answer ends with the token of the role that speaks next, so that it is learnt with the answer. */
  #renderAnswer(message: Message, { isLast, next }: RenderContext): RenderedMessage {
    const { thinking, text } = thoughtsAndText(message);
    const calls = (message.toolCalls ?? []).map(writtenCall);
    const tokens = this.encode(`${thinking}</think>${strip(text)}${calls.join("")}`);
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

  override get callSign(): string {
    return "<tool_call>";
  }

  protected override get streamPrefix(): string {
    return "<think>";
  }

  protected override readMessage(text: string): Message {
    return readAnswer(text);
  }

  protected override answerText(tokens: ArrayLike<number>): ReturnType<typeof textBeforeStop> {
    const { text, termination } = super.answerText(tokens);
    const hasEnd = Array.from(tokens).includes(this.token(END_OF_TEXT));
    return { text, termination: hasEnd ? "eos" : termination };
  }

  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [
      ...(tools.length === 0 ? [] : [{ role: "system", content: toolsText(tools) }]),
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
    ];
  }
}

/** The results from here on, in the order of their calls where ids tell it without a doubt. */
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

/** Whether a message's role stands already at the end of the one before it. */
function beginsInTheOneBefore({ role }: Message, previous: Message | undefined): boolean {
  if (previous?.role === "assistant") return ROLES.get(role) === endOf(previous);
  return role === "tool" && previous?.role === "tool";
}

function visibleText({ content }: Message): string {
  return typeof content === "string" ? content : content.map((part) => ensureText([part])).join("");
}

/** Thoughts are parts, or stand in the text between their tags. */
function thoughtsAndText(message: Message): { readonly thinking: string; readonly text: string } {
  const { content } = message;
  refuseImages(content);
  if (typeof content !== "string") return { thinking: thinkingOf(message), text: textOf(message) };
  const pieces = content.split("</think>");
  const text = pieces.at(-1)!;
  return { thinking: pieces.length === 1 ? "" : pieces[0]!.split("<think>").at(-1)!, text };
}

function writtenCall({ name, arguments: given }: ToolCall): string {
  const { value, error } = given === "" ? { value: new Map() } : readJson(given);
  if (!isJsonObject(value)) {
    throw new TinkerError(
      `The arguments of a call of ${name} must be a JSON object${error ? `: ${error}` : ""}.`,
    );
  }
  const pairs = Array.from(value, ([key, each]) => {
    const text = typeof each === "string" ? each : printPythonJson(each, { ensureAscii: false });
    return `<arg_key>${key}</arg_key><arg_value>${text}</arg_value>`;
  });
  return `<tool_call>${name}${pairs.join("")}</tool_call>`;
}

function readAnswer(text: string): Message {
  const { parts, calls } = thinkingAndToolBlocks(text, readCall) ?? { parts: text, calls: [] };
  const open = unterminatedToolBlock(text, "<tool_call>", "</tool_call>");
  return {
    role: "assistant",
    content: parts,
    ...toolCallFields(open === undefined ? calls : [...calls, open]),
  };
}

/** A call in GLM's tags, or as JSON, which a model may have learnt elsewhere. */
function readCall(given: string, rawText: string): ToolCall | UnparsedToolCall {
  const json = readJsonToolCall(given, rawText);
  if (!("rawText" in json)) return json;
  const text = strip(given);
  const name = FUNCTION_NAME.exec(text)?.[0];
  if (name === undefined) return { rawText, error: "a call must begin with the name of its function" };
  const body = text.slice(name.length);
  if (strip(body.replace(ARGUMENT, "")) !== "")
    return { rawText, error: "a call has text outside of its arguments" };
  const values = new Map<string, JsonValue>();
  for (const [, key, value] of body.matchAll(ARGUMENT)) {
    if (strip(key!) === "") return { rawText, error: "an argument of a call has no name" };
    const json = readJson(value!);
    values.set(strip(key!), json.value === undefined ? value! : json.value);
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

For each function call, output the function name and arguments within the following XML format:
<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>`;
}
