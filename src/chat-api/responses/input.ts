import { z } from "zod";
import type { ContentPart, Message, ToolCall } from "../../renderers/messages.js";
import { base64ToBytes, bytesToBase64 } from "../../wire/base64.js";
import type { SentConversation } from "../chat-model.js";
import type { Refuse } from "../lenience.js";
import { invalidValue } from "../param-error.js";
import { customArguments, modelName, toolSchema } from "./tools.js";

const part = z.object({ type: z.string(), text: z.string() });
const content = z
  .union([z.string(), z.array(part)], { error: "must be a text or a list of texts" })
  .transform((parts) => (typeof parts === "string" ? parts : parts.map(({ text }) => text).join("")));
const thoughts = z
  .array(part)
  .nullish()
  .transform((parts) => (parts ?? []).map(({ text }) => text).join("\n\n"));

const id = z.string().nullish();
const call = { id, call_id: z.string(), name: z.string().min(1), namespace: z.string().nullish() };
const output = { call_id: z.string(), output: content };

/** The items of a conversation. */
export const itemsSchema = z.array(
  z.discriminatedUnion("type", [
    z.object({
      type: z.literal("message"),
      id,
      role: z.enum(["system", "developer", "user", "assistant"]),
      content,
    }),
    z.object({ type: z.literal("function_call"), ...call, arguments: z.string() }),
    z.object({ type: z.literal("custom_tool_call"), ...call, input: z.string() }),
    z.object({ type: z.literal("function_call_output"), ...output }),
    z.object({ type: z.literal("custom_tool_call_output"), ...output }),
    z.object({
      type: z.literal("reasoning"),
      id,
      summary: thoughts,
      content: thoughts,
      encrypted_content: z.string().nullish(),
    }),
    z.object({ type: z.literal("additional_tools"), tools: z.array(toolSchema) }),
  ]),
);

type Items = z.output<typeof itemsSchema>;

/** Turns items into the conversation that a model reads. */
export function readItems(
  items: Items,
  refuse: Refuse,
): Required<Pick<SentConversation, "messages" | "ids">> & { readonly tools: z.output<typeof toolSchema>[] } {
  const turns = new Turns();
  const tools: z.output<typeof toolSchema>[] = [];
  const called = new Map<string, string>();
  for (const item of items) {
    switch (item.type) {
      case "message":
        if (item.role === "assistant") turns.answer("text", item.id).texts.push(item.content);
        else turns.say(item.role === "user" ? "user" : "system", item.content);
        break;
      case "reasoning": {
        const opened = opensThoughts(item.encrypted_content);
        turns
          .answer("reasoning", item.id ?? opened?.id)
          .thoughts.push(item.content || item.summary || (opened?.thoughts ?? ""));
        break;
      }
      case "function_call":
      case "custom_tool_call": {
        const name = modelName(item.name, item.namespace);
        const given = item.type === "function_call" ? item.arguments || "{}" : customArguments(item.input);
        called.set(item.call_id, name);
        const answer = turns.answer("call", item.id);
        answer.ids.add(item.call_id);
        answer.calls.push({ id: item.call_id, name, arguments: given });
        break;
      }
      case "function_call_output":
      case "custom_tool_call_output": {
        const { call_id: toolCallId } = item;
        if (!called.has(toolCallId))
          refuse(
            invalidValue("input", `No tool call found for function call output with call_id ${toolCallId}.`),
          );
        turns.push({ role: "tool", content: item.output, toolCallId, name: called.get(toolCallId) });
        break;
      }
      case "additional_tools":
        tools.push(...item.tools);
        break;
      default:
        item satisfies never;
    }
  }
  return { ...turns.read(), tools };
}

/** Id of an item of an answer; it ends with the answer's suffix and the item's position. */
export const itemId = (prefix: string, stem: string, place: number): string => `${prefix}_${stem}${place}`;

/** Suffix that the ids of all items of one answer share. */
const stemOf = (given: string | null | undefined): string | undefined =>
  /^[a-z]+_([0-9a-f]{32})\d+$/.exec(given ?? "")?.[1];

/** Encodes thoughts and their item id for clients that only store opaque text. */
export function sealedThoughts(reasoningId: string, text: string): string {
  return `${reasoningId}.${bytesToBase64(new TextEncoder().encode(text))}`;
}

function opensThoughts(sealed: string | null | undefined): { id: string; thoughts: string } | undefined {
  const found = /^(rs_\w+)\.([\w+/=]*)$/.exec(sealed ?? "");
  if (found === null || found[2]!.length % 4 !== 0) return undefined;
  return { id: found[1]!, thoughts: new TextDecoder().decode(base64ToBytes(found[2]!)) };
}

/** Builds the model's answer from its items. */
interface Answer {
  readonly stem: string | undefined;
  readonly thoughts: string[];
  readonly texts: string[];
  readonly calls: ToolCall[];
  readonly ids: Set<string>;
}

/** Merges the items of each answer into one message, as it was sampled. */
class Turns {
  readonly #turns: (Message | Answer)[] = [];
  readonly #byStem = new Map<string, Answer>();

  push(message: Message): void {
    this.#turns.push(message);
  }

  /** Formats allow one system message, at the beginning. */
  say(role: string, text: string): void {
    const last = this.#turns.at(-1);
    const isFirst =
      this.#turns.length === 1 && last !== undefined && "role" in last && last.role === "system";
    if (role === "system" && isFirst) {
      this.#turns[0] = { role, content: `${String(last.content)}\n\n${text}` };
    } else this.push({ role, content: text });
  }

  /** Suffix of the answer that an item belongs to. */
  answer(kind: "text" | "reasoning" | "call", given: string | null | undefined): Answer {
    const stem = stemOf(given);
    const answer = this.#find(kind, stem) ?? this.#begin(stem);
    if (given) answer.ids.add(given);
    return answer;
  }

  read(): { messages: readonly Message[]; ids: ReadonlyMap<Message, readonly string[]> } {
    const ids = new Map<Message, readonly string[]>();
    const messages = this.#turns.map((turn) => {
      if ("role" in turn) return turn;
      const message = messageOf(turn);
      ids.set(message, [...turn.ids]);
      return message;
    });
    return { messages, ids };
  }

  #begin(stem: string | undefined): Answer {
    const answer = { stem, thoughts: [], texts: [], calls: [], ids: new Set<string>() };
    this.#turns.push(answer);
    if (stem !== undefined) this.#byStem.set(stem, answer);
    return answer;
  }

  #find(kind: "text" | "reasoning" | "call", stem: string | undefined): Answer | undefined {
    const same = stem === undefined ? undefined : this.#byStem.get(stem);
    if (same !== undefined) return same;
    const last = this.#turns.at(-1);
    if (last === undefined || "role" in last) return undefined;
    if (stem !== undefined && last.stem !== undefined) return undefined;
    const isBehind = kind === "call" || (last.calls.length === 0 && last.texts.length === 0);
    return isBehind ? last : undefined;
  }
}

function messageOf({ thoughts: thought, texts, calls }: Answer): Message {
  const text: ContentPart = { type: "text", text: texts.join("") };
  const thinking = thought.join("");
  return {
    role: "assistant",
    content: thinking === "" ? text.text : [{ type: "thinking", thinking }, text],
    ...(calls.length > 0 && { toolCalls: calls }),
  };
}
