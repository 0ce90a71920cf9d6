import { markup } from "./markup.js";
import { ensureText, type Message } from "./messages.js";
import { type ParsedResponse, type RenderedMessage, Renderer } from "./renderer.js";

const STOP = "\n\nUser:";
const PREFIX = " ";
const SUFFIX = "\n\n";

/** `User: ...`, blank line, `Assistant: ...`: for base models without a chat format. */
export class RoleColonRenderer extends Renderer {
  override get hasExtensionProperty(): boolean {
    return true;
  }

  override get stopSequences(): readonly string[] {
    return [STOP];
  }

  protected override get bosTokens(): readonly number[] {
    const { bosToken } = this.tokenizer;
    return bosToken === undefined ? [] : this.encode(bosToken);
  }

  protected override get streamPadding(): string {
    return PREFIX;
  }

  protected override renderMessage({ role, content }: Message): RenderedMessage {
    const name = role.slice(0, 1).toUpperCase() + role.slice(1).toLowerCase();
    return {
      header: this.encode(markup`${name}:`),
      output: [this.plainTokens(PREFIX + ensureText(content) + SUFFIX)],
      ...(role === "assistant" && { stopOverlap: this.encode("User:") }),
    };
  }

  override parseResponse(given: ArrayLike<number>): ParsedResponse {
    const { eosToken } = this.tokenizer;
    const tokens = Array.from(given);
    const endedWithText = eosToken !== undefined && tokens.at(-1) === this.token(eosToken);
    if (endedWithText) tokens.pop();
    const [answer, ...rest] = this.tokenizer.decode(tokens).split(STOP);
    const content = withoutSuffix(answer!.startsWith(PREFIX) ? answer!.slice(PREFIX.length) : answer!);
    const message = { role: "assistant", content };
    if (rest.length === 0) return { message, termination: endedWithText ? "eos" : "malformed" };
    return { message, termination: rest.length === 1 && !endedWithText ? "stop_sequence" : "malformed" };
  }
}

function withoutSuffix(text: string): string {
  return text.endsWith(SUFFIX) ? text.slice(0, -SUFFIX.length) : text;
}
