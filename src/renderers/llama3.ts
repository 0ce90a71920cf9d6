import { ensureText, type Message } from "./messages.js";
import { textBeforeStop } from "./parsing.js";
import { type ParsedResponse, type RenderedMessage, Renderer } from "./renderer.js";

/** Llama 3's turns between headers, without the date and the tools that its own template may write. */
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

  protected override renderMessage({ role, content }: Message): RenderedMessage {
    return {
      header: this.encode(`<|start_header_id|>${role}<|end_header_id|>\n\n`),
      output: [this.encode(`${ensureText(content)}<|eot_id|>`)],
    };
  }

  override parseResponse(tokens: ArrayLike<number>): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, this.token("<|eot_id|>"));
    return { message: { role: "assistant", content: text }, termination };
  }
}
