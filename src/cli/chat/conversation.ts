import type { SamplingParams, StopReason } from "tinkerts";
import { chatStream } from "../../cookbook/chat/index.js";
import type { Message } from "../../renderers/index.js";
import type { Sampler } from "../sampling-options.js";

/** An answer of the model. */
export interface Answer {
  readonly text: string;
  readonly tokens: number;
  readonly stopReason: StopReason;
}

/** The messages so far; a turn without an answer is removed. */
export class ChatConversation {
  system: string | undefined;
  readonly #sampler: Sampler;
  readonly #params: SamplingParams;
  #turns: Message[] = [];

  constructor(sampler: Sampler, params: SamplingParams, system: string | undefined) {
    this.#sampler = sampler;
    this.#params = params;
    this.system = system;
  }

  get messages(): readonly Message[] {
    const first = this.system === undefined ? [] : [{ role: "system", content: this.system }];
    return [...first, ...this.#turns];
  }

  forget(): void {
    this.#turns = [];
  }

  /** Yields the text of the answer as it arrives, without surrounding space, and then returns the answer. */
  async *ask(content: string, signal: AbortSignal): AsyncGenerator<string, Answer, undefined> {
    const question = { role: "user", content };
    const options = { ...this.#params, signal };
    let said = "";
    let shown = "";
    for await (const delta of chatStream(this.#sampler.sampling, [...this.messages, question], options)) {
      if (delta.type === "text") {
        said += delta.text;
        const fresh = said.trim().slice(shown.length);
        shown += fresh;
        if (fresh !== "") yield fresh;
      } else if (delta.type === "message") {
        const { message, tokens, stopReason } = delta;
        const text = delta.text.trim();
        if (text !== shown) yield text.startsWith(shown) ? text.slice(shown.length) : `\n${text}`;
        // Thoughts are kept, for formats that repeat them.
        const kept = typeof message.content === "string" ? { ...message, content: text } : message;
        this.#turns.push(question, kept);
        return { text, tokens: tokens.length, stopReason };
      }
    }
    throw new Error("the answer has no end");
  }
}
