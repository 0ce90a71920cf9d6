import { HeldText } from "../renderers/held-text.js";
import { type Message, textOf } from "../renderers/messages.js";
import type { Renderer } from "../renderers/renderer.js";
import type { MessageDelta, StreamParser } from "../renderers/stream-parser.js";
import { randomUuid } from "../transport/ids.js";
import { callMetadata } from "./answer-metadata.js";
import type { PreparedCall } from "./prepare-call.js";
import type { StreamPart } from "./specification.js";

/** A stretch of text or of thoughts. */
interface Block {
  readonly kind: "text" | "reasoning";
  readonly contentIndex: number;
  /** Undefined until something of it is given. */
  id?: string;
  /** Newlines at its end so far, which belong to the format if thoughts or calls follow. */
  newlines: string;
}

/**
 * Reads an answer as the parts of a stream, while its tokens come. Newlines around thoughts and before calls belong to
 * the format and are left out; from the first sign of a call on, everything waits for the whole answer.
 */
export class AnswerReader {
  readonly #renderer: Renderer;
  readonly #offersTools: boolean;
  readonly #parser: StreamParser;
  readonly #untilCall: HeldText;
  #parts: StreamPart[] = [];
  #block: Block | undefined;
  #blocks = 0;
  #text = "";
  #reasoning = "";
  #hasCalls = false;

  constructor({ renderer, offersTools, messages, stopTexts, prefillTokens }: PreparedCall) {
    this.#renderer = renderer;
    this.#offersTools = offersTools;
    this.#parser = renderer.streamParser(messages, stopTexts);
    const { callSign } = renderer;
    this.#untilCall = new HeldText(offersTools && callSign !== undefined ? [callSign] : []);
    this.#read(this.#parser.push(prefillTokens));
  }

  /** Whether the answer calls tools; known at its end. */
  get hasCalls(): boolean {
    return this.#hasCalls;
  }

  /** All thoughts so far. */
  get reasoning(): string {
    return this.#reasoning;
  }

  /** Takes the next tokens and gives what is certain now. */
  push(tokens: number | ArrayLike<number>): StreamPart[] {
    this.#read(this.#parser.push(tokens));
    return this.#take();
  }

  /** After the last token: what was held back, calls, and the ends of what is open. */
  end(): StreamPart[] {
    const deltas = this.#parser.end();
    this.#read(deltas);
    const last = deltas.at(-1);
    const message = last?.type === "message" && this.#offersTools ? last.message : undefined;
    if (message?.toolCalls === undefined) {
      // What looks like a call and cannot be read as one stays text.
      this.#give("text", this.#untilCall.rest, this.#block?.contentIndex ?? 0);
      if (this.#block?.kind === "text") this.#giveDelta(this.#block, this.#block.newlines);
      this.#close();
    } else {
      this.#giveTextBesideCalls(message);
      this.#giveCalls(message.toolCalls);
    }
    return this.#take();
  }

  #take(): StreamPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  #read(deltas: readonly MessageDelta[]): void {
    for (const delta of deltas) {
      if (delta.type === "text") this.#give("text", this.#untilCall.push(delta.text), delta.contentIndex);
      if (delta.type === "thinking" && !this.#untilCall.isFound) {
        this.#give("reasoning", delta.thinking, delta.contentIndex);
      }
    }
  }

  #give(kind: Block["kind"], text: string, contentIndex: number): void {
    if (text === "") return;
    if (this.#block?.contentIndex !== contentIndex) {
      this.#close();
      this.#block = { kind, contentIndex, newlines: "" };
    }
    const block = this.#block!;
    const whole = block.newlines + text;
    const shown = block.id === undefined ? this.#withoutFrame(block, whole) : whole;
    const certain = shown.replace(/\n+$/, "");
    block.newlines = shown.slice(certain.length);
    this.#giveDelta(block, certain);
  }

  /** What a block begins with, without what the format writes before it. */
  #withoutFrame({ kind, contentIndex }: Block, text: string): string {
    if (kind === "reasoning" || contentIndex > 0) return text.replace(/^\n+/, "");
    const start = /^\s+(?=\S)/.exec(text)?.[0];
    if (start === undefined) return text;
    const tokens = this.#renderer.tokenizer.encode(text, { addSpecialTokens: false });
    return textOf(this.#renderer.parseResponse(tokens).message).startsWith(start) ? text : text.trimStart();
  }

  #giveDelta(block: Block, delta: string): void {
    if (delta === "") return;
    const { kind } = block;
    if (block.id === undefined) {
      block.id = String(this.#blocks++);
      this.#parts.push({ type: `${kind}-start`, id: block.id });
    }
    this.#parts.push({ type: `${kind}-delta`, id: block.id, delta });
    if (kind === "text") this.#text += delta;
    else this.#reasoning += delta;
  }

  #close(): void {
    const { kind, id } = this.#block ?? {};
    if (kind !== undefined && id !== undefined) this.#parts.push({ type: `${kind}-end`, id });
    this.#block = undefined;
  }

  /** Text behind the first call, and calls that cannot be read. */
  #giveTextBesideCalls(message: Message): void {
    const text = textOf(message);
    const behind = text.startsWith(this.#text) ? text.slice(this.#text.length) : "";
    const unread = (message.unparsedToolCalls ?? []).map(({ rawText }) => rawText);
    const rest = [behind.trim(), ...unread.filter((rawText) => !behind.includes(rawText))].join("");
    const block = this.#block;
    if (rest !== "" && block?.kind === "text") this.#giveDelta(block, block.newlines + rest);
    else this.#give("text", rest, (block?.contentIndex ?? 0) + 1);
    this.#close();
  }

  #giveCalls(calls: NonNullable<Message["toolCalls"]>): void {
    for (const call of calls) {
      const id = `call_${randomUuid()}`;
      const { name: toolName, arguments: input } = call;
      this.#parts.push(
        { type: "tool-input-start", id, toolName },
        { type: "tool-input-delta", id, delta: input },
        { type: "tool-input-end", id },
        { type: "tool-call", toolCallId: id, toolName, input, providerMetadata: callMetadata(call) },
      );
    }
    this.#hasCalls = true;
  }
}
