import { TinkerError } from "../errors.js";
import type { ImageFormat } from "../wire/index.js";
import type { JsonObject } from "./python-json.js";

/** Text that is meant to be read. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** What a model thought before it answered. */
export interface ThinkingPart {
  readonly type: "thinking";
  readonly thinking: string;
}

/** An image as the bytes of a PNG or JPEG file, or as a `data:` URI of one. */
export interface ImagePart {
  readonly type: "image";
  readonly image: Uint8Array | string;
  /** Known from the bytes when absent. */
  readonly format?: ImageFormat | undefined;
}

/** One piece of a message's content. */
export type ContentPart = TextPart | ThinkingPart | ImagePart;

/** A function that a model wants called. */
export interface ToolCall {
  /** Ties a result to its call, where the format knows ids. */
  readonly id?: string | undefined;
  readonly name: string;
  /** A JSON object, as text. */
  readonly arguments: string;
}

/** What looked like a tool call and could not be read as one. */
export interface UnparsedToolCall {
  readonly rawText: string;
  readonly error: string;
}

/** One turn of a conversation. */
export interface Message {
  /** `system`, `user`, `assistant` or `tool`; some formats know more. */
  readonly role: string;
  readonly content: string | readonly ContentPart[];
  readonly toolCalls?: readonly ToolCall[] | undefined;
  readonly unparsedToolCalls?: readonly UnparsedToolCall[] | undefined;
  /** Whether this message is learnt, for `trainOn: "customized"` alone. */
  readonly trainable?: boolean | undefined;
  /** Of a tool's result: the id of its call. */
  readonly toolCallId?: string | undefined;
  /** Of a tool's result: the function that was called. */
  readonly name?: string | undefined;
}

/** A function that a model may call. */
export interface ToolDeclaration {
  readonly name: string;
  readonly description: string;
  /** The JSON schema of its arguments. Those of a file are a `JsonObject`, so that nothing of their text is lost. */
  readonly parameters: Readonly<Record<string, unknown>> | JsonObject;
}

/** The text of a message, without thoughts and images. */
export function textOf(message: Pick<Message, "content">): string {
  const { content } = message;
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** The thoughts of a message, joined. */
export function thinkingOf(message: Pick<Message, "content">): string {
  const { content } = message;
  if (typeof content === "string") return "";
  return content.map((part) => (part.type === "thinking" ? part.thinking : "")).join("");
}

export function contentParts(content: Message["content"]): readonly ContentPart[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

/** Content that is one text; formats without thoughts and images take nothing else. */
export function ensureText(content: Message["content"]): string {
  if (typeof content === "string") return content;
  const [only] = content;
  if (content.length === 1 && only?.type === "text") return only.text;
  const kinds = content.map((part) => part.type).join(", ");
  throw new TinkerError(`content must be text alone here, got ${content.length} parts (${kinds})`);
}

/** For formats that know texts and thoughts alone. */
export function refuseImages(content: Message["content"]): void {
  if (contentParts(content).some((part) => part.type === "image")) {
    throw new TinkerError("content must be text and thoughts here: this format has no images");
  }
}

/** Whether content carries thoughts, as a part or written out with its tag. */
export function hasThinking(content: Message["content"]): boolean {
  return typeof content === "string"
    ? content.includes("<think>")
    : content.some((part) => part.type === "thinking");
}

export function withoutThinking(
  parts: readonly ContentPart[],
): readonly Exclude<ContentPart, ThinkingPart>[] {
  return parts.filter((part) => part.type !== "thinking");
}
