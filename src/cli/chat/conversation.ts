import type { SamplingParams, StopReason } from "tinkerts";
import { chat } from "../../cookbook/chat/index.js";
import type { Message } from "../../renderers/index.js";
import type { Sampler } from "../sampling-options.js";

/** What the model said. */
export interface Answer {
  readonly text: string;
  readonly tokens: number;
  readonly stopReason: StopReason;
}

/** What was said; a turn without an answer is no part of it. */
export class Conversation {
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

  async ask(content: string, signal: AbortSignal): Promise<Answer> {
    const question = { role: "user", content };
    const answer = await chat(this.#sampler.sampling, [...this.messages, question], {
      ...this.#params,
      signal,
    });
    const { message, tokens, stopReason } = answer;
    const text = answer.text.trim();
    // Thoughts stay, for formats that keep them.
    this.#turns.push(question, typeof message.content === "string" ? { ...message, content: text } : message);
    return { text, tokens: tokens.length, stopReason };
  }
}
