import type { SamplingParams, StopReason } from "tinkerts";
import type { ChatMessage, Tokenizer } from "../../tokenizers/index.js";
import type { Sampler } from "../sampling-options.js";

/** What the model said. */
export interface Answer {
  readonly text: string;
  readonly tokens: number;
  readonly stopReason: StopReason;
}

/** What was said, as the model's chat template writes it; a turn without an answer is no part of it. */
export class Conversation {
  system: string | undefined;
  readonly #sampler: Sampler;
  readonly #params: SamplingParams;
  #turns: ChatMessage[] = [];

  constructor(sampler: Sampler, params: SamplingParams, system: string | undefined) {
    this.#sampler = sampler;
    this.#params = { ...params, stop: params.stop ?? endOfTurn(sampler.tokenizer) };
    this.system = system;
  }

  get messages(): readonly ChatMessage[] {
    const first = this.system === undefined ? [] : [{ role: "system", content: this.system }];
    return [...first, ...this.#turns];
  }

  forget(): void {
    this.#turns = [];
  }

  async ask(content: string, signal: AbortSignal): Promise<Answer> {
    const { sampling, tokenizer } = this.#sampler;
    const question = { role: "user", content };
    const prompt = tokenizer.applyChatTemplate([...this.messages, question], { addGenerationPrompt: true });
    const { sequences } = await sampling.sample({ prompt, samplingParams: this.#params }, { signal });
    const { tokens, stopReason } = sequences[0]!;
    const text = tokenizer.decode(tokens, { skipSpecialTokens: true }).trim();
    this.#turns.push(question, { role: "assistant", content: text });
    return { text, tokens: tokens.length, stopReason };
  }
}

const MARK = "@@@";

/**
 * The special token that the template writes after an answer. A base model does not stop at it by itself, but one
 * that was fine-tuned on conversations says it.
 */
export function endOfTurn(tokenizer: Tokenizer): readonly number[] | undefined {
  const exchange = [
    { role: "user", content: "?" },
    { role: "assistant", content: MARK },
  ];
  const text = tokenizer.applyChatTemplate(exchange, { tokenize: false });
  const after = tokenizer.encode(text.slice(text.lastIndexOf(MARK) + MARK.length), {
    addSpecialTokens: false,
  });
  const token = after.find((id) => tokenizer.decode([id], { skipSpecialTokens: true }) === "");
  return token === undefined ? undefined : [token];
}
