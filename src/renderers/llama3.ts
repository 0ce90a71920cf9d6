import { markup } from "./markup.js";
import { ensureText, type Message } from "./messages.js";
import { textBeforeStop } from "./parsing.js";
import { strip } from "./python-text.js";
import { type ParsedResponse, type RenderContext, type RenderedMessage, Renderer } from "./renderer.js";

/** The templates of Llama 3.1 and 3.3 write these days before every system prompt; they never change. */
const DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

/** Turns of Llama 3.1 and 3.3 between headers, without the tools of their template. */
export class Llama3Renderer extends Renderer {
  override get hasExtensionProperty(): boolean {
    return true;
  }

  override get stopSequences(): readonly number[] {
    return [this.token("<|eot_id|>")];
  }

  protected override get bosTokens(): readonly number[] {
    return this.encode("<|begin_of_text|>");
  }

  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    if (this.isCookbook || messages[0]?.role === "system") return messages;
    return [{ role: "system", content: "", weight: 0 }, ...messages];
  }

  protected override renderMessage({ role, content }: Message, { index }: RenderContext): RenderedMessage {
    const text = ensureText(content);
    const dates = !this.isCookbook && role === "system" && index === 0 ? DATES : "";
    return {
      header: this.encode(markup`<|start_header_id|>${role}<|end_header_id|>\n\n${dates}`),
      output: [this.encode(markup`${this.isCookbook ? text : strip(text)}<|eot_id|>`)],
    };
  }

  override parseResponse(tokens: ArrayLike<number>): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, this.token("<|eot_id|>"));
    return { message: { role: "assistant", content: text }, termination };
  }
}
