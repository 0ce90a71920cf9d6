import { ChatMlRenderer, roleHeader, TURN_END } from "./chatml.js";
import { readImage, type SizedImage } from "./image-size.js";
import { contentParts, type ImagePart, type Message } from "./messages.js";
import type { Piece } from "./pieces.js";
import type { RenderContext, RenderedMessage } from "./renderer.js";

/** Text, or an image between texts. */
type WrittenPart = string | ImagePart;

/**
 * Turns in which text and images alternate. Text is taken as a whole, so that signs of the format that are written out
 * in it become those signs.
 */
export abstract class VisionRenderer extends ChatMlRenderer {
  /** What the prompt writes of the answer: an opened block of thoughts, or a closed one. */
  protected get prefill(): string {
    return "";
  }

  /** The positions that an image takes, which the model's processor decides. */
  protected abstract imageTokens(image: SizedImage): number;

  protected abstract writeThinking(thinking: string): string;

  /** The calls of a message that has some, with what separates them from its text. */
  protected abstract writeToolCalls(message: Message, context: RenderContext): string;

  /** Whether a message keeps its thoughts: by default those of earlier answers are dropped. */
  protected keepsThinking({ role }: Message, { isLast }: RenderContext): boolean {
    return role !== "assistant" || isLast;
  }

  /** The block that an answer without thoughts begins with. */
  protected emptyBlock(_message: Message, _context: RenderContext): string {
    return "";
  }

  protected trim(content: Message["content"]): Message["content"] {
    return content;
  }

  protected get resultFrame(): readonly [open: string, close: string] {
    return ["<tool_response>\n", "\n</tool_response>"];
  }

  protected override promptSuffix(role: string, context: RenderContext): readonly number[] {
    if (this.prefill === "") return super.promptSuffix(role, context);
    return this.encode(roleHeader(role, context.index) + this.prefill);
  }

  protected override get streamPrefix(): string {
    return this.disablesThinking ? "" : this.prefill;
  }

  protected override renderMessage(given: Message, context: RenderContext): RenderedMessage {
    const message = { ...given, content: this.trim(given.content) };
    const isAnswer = message.role === "assistant";
    const block = isAnswer ? this.emptyBlock(message, context) : "";
    const header = this.header(message, context);
    const written = mergeTexts(this.#write(message, context));
    if (!isAnswer || !context.isLast) return this.#encodeTurn(header + block, written);
    // The answer begins where the prompt ends, also where a tokenizer would join the two.
    const { prefill } = this;
    const [first, ...rest] = written;
    if (block.startsWith(prefill)) {
      return this.#encodeTurn(header + prefill, [block.slice(prefill.length), ...written]);
    }
    if (block === "" && typeof first === "string" && first.startsWith(prefill)) {
      return this.#encodeTurn(header, [prefill, first.slice(prefill.length), ...rest]);
    }
    return this.#encodeTurn(header + block, written);
  }

  #encodeTurn(header: string, written: readonly WrittenPart[]): RenderedMessage {
    return { header: this.encode(header), output: written.map((part) => this.#encodePart(part)) };
  }

  #encodePart(part: WrittenPart): Piece {
    if (typeof part === "string") return this.encode(part);
    const image = readImage(part);
    const { data, format } = image;
    return { type: "image", data, format, expectedTokens: this.imageTokens(image) };
  }

  #write(message: Message, context: RenderContext): readonly WrittenPart[] {
    const { role, content, toolCalls = [] } = message;
    const keeps = this.keepsThinking(message, context);
    const parts = contentParts(content).flatMap((part): readonly WrittenPart[] => {
      if (part.type === "text") return [part.text];
      if (part.type === "image") return ["<|vision_start|>", part, "<|vision_end|>"];
      return keeps ? [this.writeThinking(part.thinking)] : [];
    });
    const [open, close] = role === "tool" ? this.resultFrame : ["", ""];
    return [
      open,
      ...parts,
      close,
      toolCalls.length > 0 ? this.writeToolCalls(message, context) : "",
      this.endsTurn(message, context) ? TURN_END : "",
    ];
  }
}

/** Text is encoded in one go up to the next image, as a template's would be. */
function mergeTexts(parts: readonly WrittenPart[]): readonly WrittenPart[] {
  const merged: WrittenPart[] = [];
  for (const part of parts) {
    const last = merged.at(-1);
    if (typeof part === "string" && typeof last === "string") merged[merged.length - 1] = last + part;
    else merged.push(part);
  }
  return merged;
}
