import { ChatMlRenderer, roleHeader } from "./chatml.js";
import { readImage, type SizedImage } from "./image-size.js";
import { formatText, joinMarkup, Markup, markup } from "./markup.js";
import { contentParts, type ImagePart, type Message } from "./messages.js";
import type { Piece } from "./pieces.js";
import type { RenderContext, RenderedMessage } from "./renderer.js";

/** Markup, or an image between texts. */
export type WrittenPart = Markup | ImagePart;

/** Turns in which text, thoughts and images alternate. */
export abstract class VisionRenderer extends ChatMlRenderer {
  /** Beginning of the answer in the prompt: an opened block of thoughts, or a closed one. */
  protected get prefill(): string {
    return "";
  }

  /** Number of positions of an image, as the model's processor counts them. */
  protected abstract imageTokens(image: SizedImage): number;

  protected abstract writeThinking(thinking: string): Markup;

  /** The calls of a message, with the separator before them. */
  protected abstract writeToolCalls(message: Message, context: RenderContext): Markup;

  /** Whether a message keeps its thoughts, as in the current turn, which may have several messages. */
  protected keepsThinking({ role }: Message, { isLast, index, lastUserIndex }: RenderContext): boolean {
    return role !== "assistant" || isLast || (!this.isCookbook && index > lastUserIndex);
  }

  /** The block that an answer without thoughts begins with. */
  protected emptyBlock(_message: Message, _context: RenderContext): Markup {
    return formatText("");
  }

  /** Whether the Python cookbook counts an empty block as the answer's and not as its header's. */
  protected get putsBlockInOutput(): boolean {
    return false;
  }

  /** The message as the model's template takes it apart: thoughts that are written out in a text, white space. */
  protected readGiven(message: Message, _context: RenderContext): Message {
    return message;
  }

  protected get resultFrame(): readonly [open: string, close: string] {
    return ["<tool_response>\n", "\n</tool_response>"];
  }

  protected override promptSuffix(role: string, context: RenderContext): readonly number[] {
    if (this.prefill === "") return super.promptSuffix(role, context);
    return this.encode(markup`${roleHeader(role, context.index)}${formatText(this.prefill)}`);
  }

  protected override get streamPrefix(): string {
    return this.thinking === "disabled" ? "" : this.prefill;
  }

  protected override renderMessage(given: Message, context: RenderContext): RenderedMessage {
    const message = this.readGiven(given, context);
    const isAnswer = message.role === "assistant";
    const block = isAnswer ? this.emptyBlock(message, context) : formatText("");
    const header = this.header(message, context);
    const parts = this.writeParts(message, context);
    if (this.isCookbook && !this.putsBlockInOutput && !block.isEmpty) {
      const beginsAsPrompt = context.isLast && block.behind(this.prefill) !== undefined;
      if (!beginsAsPrompt) return this.#encodeTurn(markup`${header}${block}`, mergeTexts(parts));
    }
    const written = mergeTexts([block, ...parts]);
    const [first, ...rest] = written;
    // The answer begins where the prompt ends, also where a tokenizer would join the two.
    const behind =
      isAnswer && context.isLast && first instanceof Markup ? first.behind(this.prefill) : undefined;
    if (behind === undefined) return this.#encodeTurn(header, written);
    if (this.isCookbook && (this.putsBlockInOutput || block.isEmpty))
      return this.#encodeTurn(header, [formatText(this.prefill), behind, ...rest]);
    return this.#encodeTurn(markup`${header}${formatText(this.prefill)}`, [behind, ...rest]);
  }

  #encodeTurn(header: Markup, written: readonly WrittenPart[]): RenderedMessage {
    return { header: this.encode(header), output: written.map((part) => this.#encodePart(part)) };
  }

  #encodePart(part: WrittenPart): Piece {
    if (part instanceof Markup) return this.encode(part);
    const image = readImage(part);
    const { data, format } = image;
    return { type: "image", data, format, expectedTokens: this.imageTokens(image) };
  }

  protected writeParts(message: Message, context: RenderContext): readonly WrittenPart[] {
    const { role, content, toolCalls = [] } = message;
    const keeps = this.keepsThinking(message, context);
    const parts = contentParts(content).flatMap((part): readonly WrittenPart[] => {
      if (part.type === "text") return [this.textMarkup(message, part.text)];
      if (part.type === "image") return [markup`<|vision_start|>`, part, markup`<|vision_end|>`];
      return keeps ? [this.writeThinking(part.thinking)] : [];
    });
    const [open, close] = role === "tool" ? this.resultFrame : ["", ""];
    return [
      formatText(open),
      ...parts,
      formatText(close),
      toolCalls.length > 0 ? this.writeToolCalls(message, context) : formatText(""),
      formatText(this.endsTurn(message, context) ? "<|im_end|>" : ""),
    ];
  }
}

/** Text is encoded in one go up to the next image, as a template's would be. */
function mergeTexts(parts: readonly WrittenPart[]): readonly WrittenPart[] {
  const merged: WrittenPart[] = [];
  for (const part of parts) {
    const last = merged.at(-1);
    if (part instanceof Markup && last instanceof Markup)
      merged[merged.length - 1] = joinMarkup([last, part]);
    else merged.push(part);
  }
  return merged;
}
