import { TinkerError } from "../errors.js";
import type { ImageFormat } from "../wire/index.js";
import type { JsonObject } from "./python-json.js";
import { stripStart } from "./python-text.js";

/** Text that is meant to be read. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** Thoughts of a model before its answer. */
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

/** A function call that a model asks for. */
export interface ToolCall {
  /** Id that connects a result with its call, in formats that have ids. */
  readonly id?: string | undefined;
  readonly name: string;
  /** A JSON object, as text. */
  readonly arguments: string;
}

/** Text that looked like a tool call and could not be parsed. */
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
  /** Whether this message is trained on, for `trainOn: "customized"` alone. */
  readonly trainable?: boolean | undefined;
  /** OpenAI's mark on an assistant's message: 0 keeps it out of training, whatever `trainOn` says. Default: 1. */
  readonly weight?: 0 | 1 | undefined;
  /** Id of the tool call, in a tool's result. */
  readonly toolCallId?: string | undefined;
  /** Name of the function that was called, in a tool's result. */
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

/** For formats that have only texts and thoughts. */
export function refuseImages(content: Message["content"]): void {
  if (contentParts(content).some((part) => part.type === "image")) {
    throw new TinkerError("content must be text and thoughts here: this format has no images");
  }
}

/** Whether content has thoughts as a part. */
export function hasThinking(content: Message["content"]): boolean {
  return typeof content !== "string" && content.some((part) => part.type === "thinking");
}

/**
 * Content with the thoughts that are written out in a text as parts, as the templates of several families read them; the
 * text behind them loses the given signs at its beginning.
 */
export function inlineThinking(content: Message["content"], stripped = ""): Message["content"] {
  if (typeof content !== "string") return content;
  const end = content.indexOf("</think>");
  if (end === -1) return content;
  const last = content.lastIndexOf("</think>") + "</think>".length;
  return [
    { type: "thinking", thinking: content.slice(0, end).split("<think>").at(-1)! },
    { type: "text", text: stripStart(content.slice(last), stripped) },
  ];
}

export function withoutThinking(
  parts: readonly ContentPart[],
): readonly Exclude<ContentPart, ThinkingPart>[] {
  return parts.filter((part) => part.type !== "thinking");
}
