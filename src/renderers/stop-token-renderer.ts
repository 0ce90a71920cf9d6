import type { Message } from "./messages.js";
import { textBeforeStop } from "./parsing.js";
import { type ParsedResponse, Renderer } from "./renderer.js";

/** A renderer whose answers are text that ends with one of its stop tokens. */
export abstract class StopTokenRenderer extends Renderer {
  abstract override get stopSequences(): readonly number[];

  /** The message that a whole text is, or as much of one as there is. */
  protected abstract readMessage(text: string): Message;

  override parseResponse(tokens: ArrayLike<number>): ParsedResponse {
    const { text, termination } = this.answerText(tokens);
    const isWhole = termination !== "malformed";
    return { message: isWhole ? this.readMessage(text) : { role: "assistant", content: text }, termination };
  }

  protected override parseTruncated(tokens: readonly number[]): ParsedResponse {
    const { text, termination } = this.answerText(tokens);
    return { message: this.readMessage(text), termination };
  }

  protected answerText(tokens: ArrayLike<number>): ReturnType<typeof textBeforeStop> {
    return textBeforeStop(this.#withOpenedThoughts(tokens), this.tokenizer, ...this.stopSequences);
  }

  /** Where the prompt opened the thoughts, they are read as such once they are closed. */
  #withOpenedThoughts(tokens: ArrayLike<number>): readonly number[] {
    const all = Array.from(tokens);
    if (!this.streamPrefix.startsWith("<think>")) return all;
    const opensItself = all[0] === this.token("<think>");
    return opensItself || !all.includes(this.token("</think>"))
      ? all
      : [...this.encode(this.streamPrefix), ...all];
  }
}
