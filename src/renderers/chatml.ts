import { TinkerError } from "../errors.js";
import { type CallForm, jsonArguments, jsonHead } from "./answer-shape.js";
import { formatText, joinMarkup, type Markup, markup } from "./markup.js";
import type { ContentPart, Message, ToolCall, ToolDeclaration, UnparsedToolCall } from "./messages.js";
import { readJsonToolCall, thinkingAndToolBlocks, toolCallFields, unterminatedToolBlock } from "./parsing.js";
import { type JsonValue, printPythonJson, readPythonJson } from "./python-json.js";
import { strip, stripStart } from "./python-text.js";
import type { RenderContext } from "./renderer.js";
import { StopTokenRenderer } from "./stop-token-renderer.js";

/** Ends a turn. */
export const TURN_END = "<|im_end|>";
const CALL_OPEN = "<tool_call>";
const CALL_CLOSE = "</tool_call>";

/** How a family writes calls, whatever precedes them. */
export type OwnCallForm = Omit<CallForm, "thoughtsEnd" | "takesPrefill">;

/** `<|im_start|>role`, the text, `<|im_end|>`: the frame of Qwen's and Nemotron's turns. */
export abstract class ChatMlRenderer extends StopTokenRenderer {
  override get stopSequences(): readonly number[] {
    return [this.token(TURN_END)];
  }

  override get callSign(): string {
    return CALL_OPEN;
  }

  override get callForm(): CallForm {
    return {
      ...this.ownCallForm,
      thoughtsEnd: this.streamPrefix === "" ? undefined : "</think>\n\n",
      takesPrefill: true,
    };
  }

  /** Calls as JSON. */
  protected get ownCallForm(): OwnCallForm {
    return {
      frame: ["", ""],
      between: "\n",
      head: (name) => jsonHead(`${CALL_OPEN}\n{"name": "`, name, '", "arguments": '),
      arguments: jsonArguments,
      tail: `}\n${CALL_CLOSE}`,
    };
  }

  /** Between consecutive tool results, which share one user turn. */
  protected get resultSeparator(): string {
    return "\n";
  }

  protected override promptSuffix(role: string, { index }: RenderContext): readonly number[] {
    return this.encode(roleHeader(role === "tool" ? "user" : role, index));
  }

  /** Introduces a message. */
  protected header({ role }: Message, { index, previous }: RenderContext): Markup {
    if (role !== "tool") return roleHeader(role, index);
    return previous?.role === "tool" ? formatText(this.resultSeparator) : roleHeader("user", index);
  }

  /** Whether a turn ends with this message. */
  protected endsTurn({ role }: Message, { next }: RenderContext): boolean {
    return role !== "tool" || next?.role !== "tool";
  }

  /** Text and thoughts without what the format writes around them. */
  protected readParts(parts: readonly ContentPart[]): readonly ContentPart[] {
    return parts;
  }

  protected readToolCall(
    body: string,
    rawText: string,
    _tools?: readonly ToolDeclaration[],
  ): ToolCall | UnparsedToolCall {
    return readJsonToolCall(body, rawText);
  }

  protected override readMessage(text: string, tools?: readonly ToolDeclaration[]): Message {
    const blocks = thinkingAndToolBlocks(text, (body, rawText) => this.readToolCall(body, rawText, tools));
    const unterminated = unterminatedToolBlock(text, CALL_OPEN, CALL_CLOSE);
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
    return calls.length > 0 ? unframed(read, this.callSeparator) : read;
  }

  /** Text that the format writes between an answer's text and its calls. */
  protected get callSeparator(): string {
    return "\n";
  }
}

/** Without the separators around calls, which would otherwise grow each time a message is read and written. */
function unframed(parts: readonly ContentPart[], separator: string): readonly ContentPart[] {
  return parts.flatMap((part): ContentPart[] => {
    if (part.type !== "text") return [part];
    const text = part.text.endsWith(separator) ? part.text.slice(0, -separator.length) : part.text;
    return strip(text, "\n") === "" ? [] : [{ type: "text", text }];
  });
}

export function roleHeader(role: string, index: number): Markup {
  return markup`${index > 0 ? "\n" : ""}<|im_start|>${role}\n`;
}

/** Removes the format's newlines around a block of thoughts, and empty blocks. */
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
export function writeJsonToolCalls({ toolCalls = [] }: Message, ensureAscii: boolean): Markup {
  const calls = toolCalls
    .map((call) => printPythonJson({ name: call.name, arguments: callArguments(call) }, { ensureAscii }))
    .map((json) => markup`<tool_call>\n${json}\n</tool_call>`);
  return joinMarkup(calls, "\n");
}

/** The arguments of a call, which come as JSON text. */
export function callArguments({ name, arguments: json }: ToolCall): JsonValue {
  try {
    return readPythonJson(json);
  } catch (error) {
    const why = (error as Error).message;
    throw new TinkerError(`the arguments of the call to ${JSON.stringify(name)} must be JSON: ${why}`, {
      cause: error,
    });
  }
}
