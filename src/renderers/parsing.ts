import { TinkerError } from "../errors.js";
import type { TextTokenizer } from "../tokenizers/index.js";
import type { ContentPart, Message, ToolCall, UnparsedToolCall } from "./messages.js";
import { isJsonObject, type JsonValue, printPythonJson, readPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";
import type { ParsedResponse, ParseTermination } from "./renderer.js";

const MAX_DETAIL_LENGTH = 16_384;

/** Kind of parse failure: the answer's frame, which ends the conversation, or only a tool call within it. */
export interface ParseFailure {
  readonly kind: "structural" | "content";
  readonly detail: string;
}

/** The failure of a parsed answer, if any: a broken frame before tool calls that could not be read. */
export function classifyParseFailure({ message, termination }: ParsedResponse): ParseFailure | undefined {
  if (termination === "malformed") {
    return { kind: "structural", detail: "The answer did not end with the stop sign of its format." };
  }
  const unparsed = message.unparsedToolCalls ?? [];
  if (unparsed.length === 0) return undefined;
  const detail = unparsed.map(({ error }) => error).join("\n");
  return { kind: "content", detail: detail.slice(0, MAX_DETAIL_LENGTH) };
}

/** The text before the stop token. Without one the answer was cut off; with two it did not end where it should. */
export function textBeforeStop(
  tokens: ArrayLike<number>,
  tokenizer: TextTokenizer,
  ...stopTokens: readonly number[]
): { readonly text: string; readonly termination: ParseTermination } {
  const all = Array.from(tokens);
  const isStop = (token: number) => stopTokens.includes(token);
  const end = all.findIndex(isStop);
  if (end === -1) return { text: tokenizer.decode(all), termination: "malformed" };
  const endsOnce = all.findLastIndex(isStop) === end;
  return { text: tokenizer.decode(all.slice(0, end)), termination: endsOnce ? "stop_sequence" : "malformed" };
}

/** A JSON value, or the reason why a text is not JSON. */
export function readJson(
  text: string,
):
  | { readonly value: JsonValue; readonly error?: undefined }
  | { readonly value?: undefined; readonly error: string } {
  try {
    return { value: readPythonJson(text) };
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    return { error: `Invalid JSON: ${error.message}` };
  }
}

/** A tool call that is one JSON object, `{"name": ..., "arguments": {...}}`. */
export function readJsonToolCall(body: string, rawText: string): ToolCall | UnparsedToolCall {
  const { value: call, error } = readJson(strip(body));
  if (error !== undefined) return { rawText, error };
  if (!isJsonObject(call)) return { rawText, error: "Tool call is not a JSON object" };
  const [name, given, id] = [call.get("name"), call.get("arguments"), call.get("id")];
  if (typeof name !== "string") return { rawText, error: "Missing or invalid 'name' field" };
  if (!isJsonObject(given)) return { rawText, error: "Missing or invalid 'arguments' field" };
  return { ...(typeof id === "string" && { id }), name, arguments: printPythonJson(given) };
}

/** A tool block that was never closed, which would otherwise count as text. */
export function unterminatedToolBlock(
  text: string,
  open: string,
  close: string,
): UnparsedToolCall | undefined {
  const opened = text.split(open).length - 1;
  if (opened <= text.split(close).length - 1) return undefined;
  return {
    rawText: text.slice(text.lastIndexOf(open)).slice(0, MAX_DETAIL_LENGTH),
    error: `unterminated tool block: '${open}' opened without a matching '${close}'`,
  };
}

/** Text and thoughts in order, as parts; undefined where no thought is marked. Empty ones are left out. */
export function thinkingBlocks(text: string): readonly ContentPart[] | undefined {
  if (!text.includes("<think>")) return undefined;
  const parts: ContentPart[] = [];
  splitAtBlocks(text, /<think>(.*?)<\/think>/gs, parts, ([, thinking]) => addThinking(parts, thinking!));
  return parts;
}

/** Text, thoughts and `<tool_call>` blocks; undefined where neither is marked. */
export function thinkingAndToolBlocks(
  text: string,
  readToolCall: (body: string, rawText: string) => ToolCall | UnparsedToolCall,
):
  | { readonly parts: readonly ContentPart[]; readonly calls: readonly (ToolCall | UnparsedToolCall)[] }
  | undefined {
  if (!text.includes("<think>") && !text.includes("<tool_call>")) return undefined;
  const parts: ContentPart[] = [];
  const calls: (ToolCall | UnparsedToolCall)[] = [];
  const blocks = /<think>(.*?)<\/think>|<tool_call>(.*?)<\/tool_call>/gs;
  splitAtBlocks(text, blocks, parts, ([rawText, thinking, body]) => {
    if (thinking !== undefined) addThinking(parts, thinking);
    else calls.push(readToolCall(body!, rawText));
  });
  return { parts, calls };
}

/** A call with its arguments as they were written, if they are JSON. */
export function readArguments(
  given: string,
  rawText: string,
  call: Pick<ToolCall, "id" | "name">,
): ToolCall | UnparsedToolCall {
  const { error } = readJson(given);
  return error === undefined ? { ...call, arguments: given } : { rawText, error };
}

/** The fields of a message for calls that were read and those that could not be. */
export function toolCallFields(
  calls: readonly (ToolCall | UnparsedToolCall)[],
): Pick<Message, "toolCalls" | "unparsedToolCalls"> {
  const toolCalls = calls.filter((call): call is ToolCall => !("rawText" in call));
  const unparsedToolCalls = calls.filter((call): call is UnparsedToolCall => "rawText" in call);
  return {
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(unparsedToolCalls.length > 0 && { unparsedToolCalls }),
  };
}

export function splitAtBlocks(
  text: string,
  blocks: RegExp,
  parts: ContentPart[],
  onBlock: (match: RegExpMatchArray) => void,
): void {
  let position = 0;
  for (const match of text.matchAll(blocks)) {
    addText(parts, text.slice(position, match.index));
    onBlock(match);
    position = match.index + match[0].length;
  }
  addText(parts, text.slice(position));
}

function addText(parts: ContentPart[], text: string): void {
  if (text !== "") parts.push({ type: "text", text });
}

function addThinking(parts: ContentPart[], thinking: string): void {
  if (thinking !== "") parts.push({ type: "thinking", thinking });
}
