/** Conversations as the judges of formats take them, and what ours and theirs make of them, in one shape. */
import { isDeepStrictEqual } from "node:util";
import { TinkerError } from "../../src/errors.js";
import { type Message, type Renderer, textOf, thinkingOf } from "../../src/renderers/index.js";
import { withTools } from "../../src/renderers/prepare-answer.js";
import { PLAIN_TOKENS, SPECIAL_TOKENS } from "../support/character-tokenizer.js";
import type { Conversation } from "./conversations.js";

/** A sign of the format, or a run of text, with the weight of its tokens. */
export type FormatPiece = readonly [text: string, isSign: boolean, weight: number];

export type FormatOutcome = { readonly ok?: unknown; readonly error?: string };

const SIGNS = new Set([...SPECIAL_TOKENS, ...PLAIN_TOKENS]);

/** Tokens of characters as signs and runs of text. */
export function piecesOf(
  { tokenizer }: Renderer,
  tokens: readonly number[],
  weights: ArrayLike<number> = [],
): readonly FormatPiece[] {
  const pieces: FormatPiece[] = [];
  for (const [index, token] of tokens.entries()) {
    const text = tokenizer.decode([token]);
    const isSign = text.length > 1 && SIGNS.has(text);
    const weight = weights[index] ?? 0;
    const last = pieces.at(-1);
    if (!isSign && last !== undefined && !last[1] && last[2] === weight)
      pieces[pieces.length - 1] = [last[0] + text, false, weight];
    else pieces.push([text, isSign, weight]);
  }
  return pieces;
}

export function attempt(make: () => unknown): FormatOutcome {
  try {
    return { ok: make() };
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    return { error: error.message };
  }
}

export function ourMessages(renderer: Renderer, { messages, tools = [] }: Conversation): readonly Message[] {
  return withTools(renderer, messages, tools);
}

const declared = ({ tools }: Conversation) =>
  tools && { tools: tools.map((tool) => ({ type: "function", function: tool })) };

function calls({ toolCalls }: Message): object {
  if (toolCalls === undefined) return {};
  return {
    tool_calls: toolCalls.map(({ id, name, arguments: given }) => ({
      type: "function",
      id,
      function: { name, arguments: given },
    })),
  };
}

const result = ({ role, toolCallId, name }: Message) =>
  role === "tool" ? { tool_call_id: toolCallId, name } : {};

/** As tml-renderers takes it. */
export function forNative(conversation: Conversation): object {
  const messages = conversation.messages.map((message) => ({
    role: message.role,
    content: message.content,
    ...calls(message),
    ...result(message),
  }));
  return { messages, ...declared(conversation) };
}

/** As chat templates take it; thoughts under both names that these have for them. */
export function forTemplate(conversation: Conversation): object {
  const messages = conversation.messages.map((message) => {
    const thinking = thinkingOf(message);
    return {
      role: message.role,
      content: textOf(message),
      ...(thinking !== "" && { reasoning_content: thinking, thinking }),
      ...calls(message),
      ...result(message),
    };
  });
  return { messages, ...declared(conversation) };
}

/** What was said, thought and called, whatever the shape. */
export function gist(messages: readonly object[]): object {
  const read = messages as readonly {
    content?: Message["content"] | null;
    tool_calls?: readonly Call[];
    toolCalls?: Message["toolCalls"];
  }[];
  return {
    text: read.map(({ content }) => textOf({ content: content ?? "" })).join(""),
    thinking: read.map(({ content }) => thinkingOf({ content: content ?? "" })).join(""),
    calls: read.flatMap(({ tool_calls: theirs = [], toolCalls: own = [] }) => [
      ...own.map(({ name, arguments: given }) => [name, readArguments(given)]),
      ...theirs.map(({ function: { name, arguments: given } }) => [name, readArguments(given)]),
    ]),
  };
}

/** Arguments as JSON has them, whatever their order and how numbers are printed; a text that is no JSON stays one. */
function readArguments(given: unknown): unknown {
  if (typeof given !== "string") return given;
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}

type Call = { readonly function: { readonly name: string; readonly arguments: unknown } };

export function isSame(ours: FormatOutcome, theirs: FormatOutcome): boolean {
  if (ours.error !== undefined || theirs.error !== undefined)
    return ours.error !== undefined && theirs.error !== undefined;
  return isDeepStrictEqual(normalized(ours.ok), normalized(theirs.ok));
}

/** Several tokenizers compose characters before they encode them; that of characters does not. */
const normalized = (value: unknown): unknown => JSON.parse(JSON.stringify(value).normalize("NFC"));
