import { isDeepStrictEqual } from "node:util";
import { type Message, type ToolCall, textOf } from "../renderers/messages.js";

/** An answer as the client received it, to recognise it in later requests. */
export interface GivenAnswer {
  readonly text: string;
  readonly calls: readonly ToolCall[];
  /** Ids besides those of calls: of items, signatures, encrypted thoughts. */
  readonly ids: readonly string[];
}

/** The ids that a client sent back with its messages, besides those of calls. */
export type MessageIds = ReadonlyMap<Message, readonly string[]>;

/**
 * Sorts the results of parallel calls by their calls: agents send them in the order in which they finish, which changes
 * from request to request.
 */
export function arranged(messages: readonly Message[]): readonly Message[] {
  const places = new Map<string, number>();
  const result: Message[] = [];
  let run: Message[] = [];
  const endRun = () => {
    const placeOf = ({ toolCallId }: Message) => places.get(toolCallId ?? "") ?? places.size;
    result.push(...run.toSorted((one, other) => placeOf(one) - placeOf(other)));
    run = [];
  };
  for (const message of messages) {
    if (message.role === "tool") {
      run.push(message);
      continue;
    }
    endRun();
    result.push(message);
    if (message.role !== "assistant") continue;
    places.clear();
    for (const [place, { id }] of (message.toolCalls ?? []).entries()) if (id) places.set(id, place);
  }
  endRun();
  return result;
}

/** Whether two messages are the same but for white space and JSON layout. */
export function isSameMessage(one: Message, other: Message): boolean {
  if (one === other) return true;
  return (
    one.role === other.role &&
    one.toolCallId === other.toolCallId &&
    textOf(one).trim() === textOf(other).trim() &&
    isSameList(one.toolCalls ?? [], other.toolCalls ?? [], isSameCall)
  );
}

/**
 * Whether a message is an earlier answer. Calls are recognised by their ids, since clients rewrite arguments; a text may
 * be trimmed, and thoughts and the text beside calls may be missing.
 */
export function isAnswer(message: Message, given: GivenAnswer, ids?: MessageIds): boolean {
  if (message.role !== "assistant") return false;
  const calls = message.toolCalls ?? [];
  if (!isSameList(calls, given.calls, (call, known) => call.id === known.id && call.name === known.name))
    return false;
  const text = textOf(message).trim();
  if (text === given.text.trim()) return true;
  if (text !== "") return false;
  return calls.length > 0 || (ids?.get(message) ?? []).some((id) => given.ids.includes(id));
}

/** Number of equal messages at the beginning. */
export function commonMessages(left: readonly Message[], right: readonly Message[]): number {
  const end = Math.min(left.length, right.length);
  for (let at = 0; at < end; at += 1) if (!isSameMessage(left[at]!, right[at]!)) return at;
  return end;
}

function isSameCall(one: ToolCall, other: ToolCall): boolean {
  return one.id === other.id && one.name === other.name && isSameJson(one.arguments, other.arguments);
}

function isSameJson(one: string, other: string): boolean {
  if (one === other) return true;
  try {
    return isDeepStrictEqual(JSON.parse(one), JSON.parse(other));
  } catch {
    return false;
  }
}

function isSameList<T>(one: readonly T[], other: readonly T[], isSame: (a: T, b: T) => boolean): boolean {
  return one.length === other.length && one.every((item, at) => isSame(item, other[at]!));
}
