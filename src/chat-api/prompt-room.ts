import { TinkerError } from "../errors.js";
import type { EncodeOptions } from "../tokenizers/index.js";
import type { ChatModel } from "./chat-model.js";
import { invalidValue, ParamError } from "./param-error.js";

/** Lower than the average of a whole prompt, which is about 4. */
const MAX_CHARACTERS_PER_TOKEN = 16;

/** Tokenizes texts; a text that the tokenizer cannot read is refused with the reason. */
export async function encodeTexts(
  texts: readonly string[],
  { tokenizer }: Pick<ChatModel, "tokenizer">,
  options?: EncodeOptions,
): Promise<number[][]> {
  try {
    return await tokenizer.encodeBatch(texts, options);
  } catch (error) {
    if (error instanceof TinkerError) throw invalidValue("prompt", `prompt: ${error.message}`);
    throw error;
  }
}

type Reader = Pick<ChatModel, "name" | "maxContextLength">;

/** Refuses a text that is far too long, before its tokens are counted. */
export function checkTextLength(length: number, model: Reader, param: string): void {
  const tokens = Math.ceil(length / MAX_CHARACTERS_PER_TOKEN);
  if (tokens > model.maxContextLength)
    throw new PromptTooLongError(model, param, tokens, `${length} characters`);
}

/** Number of tokens that an answer to a prompt may have; refuses a prompt that fills the context. */
export function roomBehind(length: number, model: Reader, param: string): number {
  if (length === 0) throw invalidValue(param, `${param} has no tokens.`);
  if (length > model.maxContextLength) throw new PromptTooLongError(model, param, length);
  // The last token is never read again, so it needs no place in the context.
  return model.maxContextLength + 1 - length;
}

/**
 * The prompt does not fit into the model's context. Agents shorten their conversation when they see this error; some know
 * it by its code, others by OpenAI's words.
 */
export class PromptTooLongError extends ParamError {
  /** Tokens of the prompt; if they were not counted, a lower bound from its characters. */
  readonly tokens: number;
  readonly maxTokens: number;

  constructor({ name, maxContextLength }: Reader, param: string, tokens: number, given = `${tokens} tokens`) {
    const message =
      `This model's maximum context length is ${maxContextLength} tokens. However, your ${param} resulted in ${given}. ` +
      `Please reduce the length of the ${param}. (${name})`;
    super(400, "context_length_exceeded", message, param);
    this.tokens = tokens;
    this.maxTokens = maxContextLength;
  }
}
