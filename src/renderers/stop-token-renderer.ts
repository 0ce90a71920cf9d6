import type { Message, ToolDeclaration } from "./messages.js";
import { textBeforeStop } from "./parsing.js";
import { type ParsedResponse, Renderer } from "./renderer.js";

/** A renderer whose answers are text that ends with one of its stop tokens. */
export abstract class StopTokenRenderer extends Renderer {
  abstract override get stopSequences(): readonly number[];

  /** The message of a whole or unfinished text. */
  protected abstract readMessage(text: string, tools?: readonly ToolDeclaration[]): Message;

  override parseResponse(tokens: ArrayLike<number>, tools?: readonly ToolDeclaration[]): ParsedResponse {
    const { text, termination } = this.answerText(tokens);
    const isWhole = termination !== "malformed";
    return {
      message: isWhole ? this.readMessage(text, tools) : { role: "assistant", content: text },
      termination,
    };
  }

  protected override parseTruncated(
    tokens: readonly number[],
    tools?: readonly ToolDeclaration[],
  ): ParsedResponse {
    const { text, termination } = this.answerText(tokens);
    return { message: this.readMessage(text, tools), termination };
  }

  protected answerText(tokens: ArrayLike<number>): ReturnType<typeof textBeforeStop> {
    return textBeforeStop(this.#withOpenedThoughts(tokens), this.tokenizer, ...this.stopSequences);
  }

  /** Thoughts that the prompt opened are read as thoughts once they are closed. */
  #withOpenedThoughts(tokens: ArrayLike<number>): readonly number[] {
    const all = Array.from(tokens);
    if (!this.streamPrefix.startsWith("<think>")) return all;
    const opensItself = all[0] === this.token("<think>");
    return opensItself || !all.includes(this.token("</think>"))
      ? all
      : [...this.encode(this.streamPrefix), ...all];
  }
}
