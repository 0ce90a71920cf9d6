import { TinkerError } from "../errors.js";
import type { ContentPart, Message, ToolCall, UnparsedToolCall } from "./messages.js";
import { thinkingAndToolBlocks, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import { isJsonObject, type JsonValue, printPythonJson, readPythonJson } from "./python-json.js";
import { strip, stripEnd, stripStart } from "./python-text.js";
import type { RenderContext } from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";

/** Ends a turn. */
export const TURN_END = "<|im_end|>";
const CALL_OPEN = "<tool_call>";

/** `<|im_start|>role`, the text, `<|im_end|>`: the frame of Qwen's and Nemotron's turns, and their answers read back. */
export abstract class ChatMlRenderer extends StopTokenRenderer {
  override get stopSequences(): readonly number[] {
    return [this.token(TURN_END)];
  }

  override get callSign(): string {
    return CALL_OPEN;
  }

  override callOpening(name?: string): string | undefined {
    return this.streamPrefix === "" ? `${CALL_OPEN}\n${this.callHead(name)}` : undefined;
  }

  /** How a call goes on behind its tag. */
  protected callHead(name: string | undefined): string {
    return name === undefined ? '{"name": "' : `{"name": ${JSON.stringify(name)}, "arguments": `;
  }

  /** Between results of tools in a row, which share one turn of the user's. */
  protected get resultSeparator(): string {
    return "\n";
  }

  protected override promptSuffix(role: string, { index }: RenderContext): readonly number[] {
    return this.encode(roleHeader(role === "tool" ? "user" : role, index));
  }

  /** Introduces a message. */
  protected header({ role }: Message, { index, previous }: RenderContext): string {
    if (role !== "tool") return roleHeader(role, index);
    return previous?.role === "tool" ? this.resultSeparator : roleHeader("user", index);
  }

  /** Whether a turn ends with this message. */
  protected endsTurn({ role }: Message, { next }: RenderContext): boolean {
    return role !== "tool" || next?.role !== "tool";
  }

  /** Text and thoughts without what the format writes around them. */
  protected readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return parts;
  }

  protected readToolCall(body: string, rawText: string): ToolCall | UnparsedToolCall {
    return readJsonToolCall(body, rawText);
  }

  protected override readMessage(text: string): Message {
    const blocks = thinkingAndToolBlocks(text, (body, rawText) => this.readToolCall(body, rawText));
    const unterminated = unterminatedToolBlock(text, "<tool_call>", "</tool_call>");
    const calls = [...(blocks?.calls ?? []), ...(unterminated === undefined ? [] : [unterminated])];
    return {
      role: "assistant",
      content: blocks === undefined ? text : this.#contentOf(blocks),
      ...toolCallFields(calls),
    };
  }

  #contentOf({
    parts,
    calls,
  }: NonNullable<ReturnType<typeof thinkingAndToolBlocks>>): readonly ContentPart[] {
    const read = this.readParts(parts);
    return calls.length > 0 ? unframed(read) : read;
  }
}

/** Without the newlines around calls, which would otherwise grow each time that a message is read and written again. */
function unframed(parts: readonly ContentPart[]): readonly ContentPart[] {
  return parts.flatMap((part): ContentPart[] => {
    if (part.type !== "text") return [part];
    const text = stripEnd(part.text, "\n");
    return text === "" ? [] : [{ type: "text", text }];
  });
}

export function roleHeader(role: string, index: number): string {
  return `${index > 0 ? "\n" : ""}<|im_start|>${role}\n`;
}

/** Takes away the newlines around a block of thoughts, which belong to the format; one without thoughts is none. */
export function unframeThinking(
  parts: readonly ContentPart[],
  stripThinking: (thinking: string) => string = strip,
): readonly ContentPart[] {
  let isAfterBlock = false;
  return parts.flatMap((part): ContentPart[] => {
    const followsBlock = isAfterBlock;
    isAfterBlock = part.type === "thinking";
    if (part.type === "thinking") {
      const thinking = stripThinking(part.thinking);
      return thinking === "" ? [] : [{ type: "thinking", thinking }];
    }
    if (part.type === "text" && followsBlock) return [{ type: "text", text: stripStart(part.text, "\n") }];
    return [part];
  });
}

/** Each call as one JSON object between tags. */
export function writeJsonToolCalls({ toolCalls = [] }: Message): string {
  return toolCalls
    .map((call) => printPythonJson({ name: call.name, arguments: readArguments(call) }))
    .map((json) => `<tool_call>\n${json}\n</tool_call>`)
    .join("\n");
}

/** The arguments of a call, which come as JSON text. */
export function readArguments({ name, arguments: json }: ToolCall): JsonValue {
  try {
    return readPythonJson(json);
  } catch (error) {
    const why = (error as Error).message;
    throw new TinkerError(`the arguments of the call to ${JSON.stringify(name)} must be JSON: ${why}`, {
      cause: error,
    });
  }
}

export function readJsonToolCall(body: string, rawText: string): ToolCall | UnparsedToolCall {
  const unparsed = (error: string): UnparsedToolCall => ({ rawText, error });
  let call: ReturnType<typeof readPythonJson>;
  try {
    call = readPythonJson(strip(body));
  } catch (error) {
    return unparsed(`Invalid JSON: ${(error as Error).message}`);
  }
  if (!isJsonObject(call)) return unparsed("Tool call is not a JSON object");
  const [name, given, id] = [call.get("name"), call.get("arguments"), call.get("id")];
  if (typeof name !== "string") return unparsed("Missing or invalid 'name' field");
  if (!isJsonObject(given)) return unparsed("Missing or invalid 'arguments' field");
  return { ...(typeof id === "string" && { id }), name, arguments: printPythonJson(given) };
}
