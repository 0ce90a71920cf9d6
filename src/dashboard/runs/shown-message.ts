import type { ShownMessage, ShownPart } from "../api.js";

type Fields = Readonly<Record<string, unknown>>;

/** A message as a log has it, ours or the Python cookbook's, made ready to be shown as text. */
export function shownMessage(value: unknown): ShownMessage {
  const message = fieldsOf(value);
  const calls = listOf(message["toolCalls"] ?? message["tool_calls"]).map(shownCall);
  const unread = listOf(message["unparsedToolCalls"] ?? message["unparsed_tool_calls"]).map(
    (call): ShownPart => {
      const { rawText, raw_text: text = rawText } = fieldsOf(call);
      return { type: "other", text: shownText(text) };
    },
  );
  const { content, role } = message;
  const parts =
    typeof content === "string" ? [{ type: "text", text: content } as const] : listOf(content).map(shownPart);
  return {
    role: typeof role === "string" ? role : "unknown",
    parts: [...parts.filter(({ text }) => text !== ""), ...calls, ...unread],
  };
}

/** The messages of a log's line, where it has some. */
export function shownMessages(value: unknown): readonly ShownMessage[] | undefined {
  return Array.isArray(value) && value.length > 0 ? value.map(shownMessage) : undefined;
}

function shownPart(value: unknown): ShownPart {
  const part = fieldsOf(value);
  if (typeof part["text"] === "string") return { type: "text", text: part["text"] };
  if (typeof part["thinking"] === "string") return { type: "thinking", text: part["thinking"] };
  return { type: "other", text: part["type"] === "image" ? "an image" : shownText(value) };
}

function shownCall(value: unknown): ShownPart {
  const call = fieldsOf(value);
  const inner = fieldsOf(call["function"] ?? call);
  return { type: "call", name: shownText(inner["name"]), text: shownText(inner["arguments"]) };
}

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A logged value as text. */
export function shownText(value: unknown): string {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    return "something nested too deeply to be shown";
  }
}
