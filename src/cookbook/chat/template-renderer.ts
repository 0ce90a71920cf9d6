import { TinkerError } from "../../errors.js";
import type { Tokenizer } from "../../tokenizers/index.js";
import { ModelInput } from "../../wire/index.js";
import { type Message, textOf } from "../renderers/messages.js";
import { textBeforeStop, thinkingBlocks } from "../renderers/parsing.js";
import {
  type ParsedResponse,
  type PromptOptions,
  type RenderedMessage,
  Renderer,
} from "../renderers/renderer.js";

/** Writes prompts with a model's own chat template, for models that no renderer was written for. */
export class TemplateChatRenderer extends Renderer {
  readonly #template: Pick<Tokenizer, "applyChatTemplate">;
  readonly #endOfTurn: number;

  constructor(tokenizer: Tokenizer) {
    super(tokenizer);
    this.#template = tokenizer;
    this.#endOfTurn = endOfTurn(tokenizer);
  }

  override get stopSequences(): readonly number[] {
    return [this.#endOfTurn];
  }

  override buildPrompt(messages: readonly Message[], { prefill }: PromptOptions = {}): ModelInput {
    const turns = messages.map((message) => ({ role: message.role, content: textOf(message) }));
    const prompt = this.#template.applyChatTemplate(turns, { addGenerationPrompt: true });
    return ModelInput.fromInts(prefill === undefined ? prompt : [...prompt, ...this.encode(prefill)]);
  }

  override parseResponse(tokens: ArrayLike<number>): ParsedResponse {
    const { text, termination } = textBeforeStop(tokens, this.tokenizer, this.#endOfTurn);
    return { message: { role: "assistant", content: thinkingBlocks(text) ?? text }, termination };
  }

  protected override renderMessage(): RenderedMessage {
    throw new TinkerError(
      "A chat template says how a prompt is written and not what of it is learnt: name a renderer to train with.",
    );
  }
}

const MARK = "@@@";

/**
 * The special token that the template writes after an answer. A base model does not stop at it by itself, but one
 * that was fine-tuned on conversations says it.
 */
function endOfTurn(tokenizer: Tokenizer): number {
  const exchange = [
    { role: "user", content: "?" },
    { role: "assistant", content: MARK },
  ];
  const text = tokenizer.applyChatTemplate(exchange, { tokenize: false });
  const after = text.slice(text.lastIndexOf(MARK) + MARK.length) + (tokenizer.eosToken ?? "");
  const token = tokenizer
    .encode(after, { addSpecialTokens: false })
    .find((id) => tokenizer.decode([id], { skipSpecialTokens: true }) === "");
  if (token !== undefined) return token;
  throw new TinkerError(
    `The chat template of ${tokenizer.name} ends an answer with no special token, so nobody could tell where one ends: name a renderer.`,
  );
}
