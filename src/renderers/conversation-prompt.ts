import { TinkerError } from "../errors.js";
import type { TextTokenizer } from "../tokenizers/index.js";
import type { ModelInput } from "../wire/index.js";
import type { Message } from "./messages.js";
import { commonLength, type Item, inputOf, itemsOf } from "./pieces.js";
import type { Renderer } from "./renderer.js";

/** Prompt of a conversation that keeps the model's earlier answers exactly as they were sampled. */
export interface ConversationPrompt {
  readonly messages: readonly Message[];
  readonly prompt: ModelInput;
  /** Conversation as the renderer alone writes it. */
  readonly rendered: ModelInput;
  /** Whether the prompt begins with the last one and the answer to it, token for token. */
  readonly isExtension: boolean;
}

/** A character may have as many tokens as bytes. */
const MAX_CHARACTER_TOKENS = 4;
const BROKEN_CHARACTER = "\uFFFD";

/** The prompt of a new conversation. */
export function beginPrompt(
  renderer: Renderer,
  messages: readonly Message[],
  prefill?: string,
): ConversationPrompt {
  const rendered = renderer.buildPrompt(messages, { prefill });
  return { messages, prompt: rendered, rendered, isExtension: false };
}

/**
 * The prompt after an answer: the last prompt, exactly the sampled tokens, and the newer messages. An answer that is
 * read and written again may have other tokens, or a call with other spaces; here the sampled ones stay. If the format
 * writes an earlier answer differently, for example without its thoughts, the conversation is written again. `messages`
 * are those of the last prompt, the answer, and what follows it; `prefill` begins the next answer.
 */
export function continuePrompt(
  renderer: Renderer,
  last: ConversationPrompt,
  sampled: ArrayLike<number>,
  messages: readonly Message[],
  prefill?: string,
): ConversationPrompt {
  const rendered = renderer.buildPrompt(messages, { prefill });
  const whole = itemsOf(rendered);
  const before = itemsOf(last.rendered);
  const tokens = Array.from(sampled);
  const beginning = before.concat(tokens);
  const endOfSame = endOfTokens(whole, beginning);
  if (endOfSame !== undefined && last.prompt === last.rendered) {
    return { messages, prompt: rendered, rendered, isExtension: true };
  }
  const end =
    endOfSame ??
    endOfText(whole, beginning, renderer.tokenizer) ??
    endOfAnswer(whole, before, tokens, renderer, messages.slice(0, last.messages.length + 1));
  if (end === undefined) return { messages, prompt: rendered, rendered, isExtension: false };
  const prompt = inputOf(itemsOf(last.prompt).concat(tokens, whole.slice(end)));
  return { messages, prompt, rendered, isExtension: true };
}

function endOfTokens(whole: readonly Item[], beginning: readonly Item[]): number | undefined {
  return commonLength(whole, beginning) === beginning.length ? beginning.length : undefined;
}

/** Where the same text ends, even if its tokens differ. */
function endOfText(
  whole: readonly Item[],
  beginning: readonly Item[],
  tokenizer: TextTokenizer,
): number | undefined {
  const common = commonLength(whole, beginning);
  for (let start = common; start >= 0 && start > common - MAX_CHARACTER_TOKENS; start -= 1) {
    const other = beginning.slice(start);
    if (!other.every(isToken)) return undefined;
    const text = tokenizer.decode(other);
    // Parts of a character cannot be compared.
    if (text.startsWith(BROKEN_CHARACTER)) continue;
    if (text.includes(BROKEN_CHARACTER)) return undefined;
    const image = whole.findIndex((item, index) => index >= start && !isToken(item));
    const tokens = whole.slice(start, image === -1 ? undefined : image) as number[];
    const length = lengthOfText(tokens, text, tokenizer);
    return length === undefined ? undefined : start + length;
  }
  return undefined;
}

function lengthOfText(tokens: readonly number[], text: string, tokenizer: TextTokenizer): number | undefined {
  const textOf = (length: number) => tokenizer.decode(tokens.slice(0, length));
  let [low, high] = [0, tokens.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (textOf(middle).length < text.length) low = middle + 1;
    else high = middle;
  }
  // An incomplete character may look longer than it is.
  for (let length = low; length <= Math.min(low + MAX_CHARACTER_TOKENS, tokens.length); length += 1) {
    if (textOf(length) === text) return length;
  }
  return undefined;
}

/** Where the answer ends, if it is written the same when sampled and as history. */
function endOfAnswer(
  whole: readonly Item[],
  before: readonly Item[],
  sampled: readonly number[],
  renderer: Renderer,
  answered: readonly Message[],
): number | undefined {
  const example = exampleOf(renderer, answered);
  if (example === undefined) return undefined;
  if (endOfTokens(example, before) === undefined || endOfTokens(whole, example) === undefined)
    return undefined;
  const written = example.slice(before.length).filter(isToken);
  return endAlike(sampled, written, renderer) ? example.length : undefined;
}

/** Undefined if the answer cannot follow its prompt, for example thoughts where the format allows none. */
function exampleOf(renderer: Renderer, answered: readonly Message[]): readonly Item[] | undefined {
  try {
    const messages = answered.map(({ trainable, ...message }) => message);
    return itemsOf(renderer.buildSupervisedExample(messages, "last_assistant_message").input);
  } catch (error) {
    if (error instanceof TinkerError) return undefined;
    throw error;
  }
}

/** Whether two answers end with the same stop sign. */
function endAlike(
  tokens: readonly number[],
  others: readonly number[],
  { stopSequences, tokenizer }: Renderer,
): boolean {
  return stopSequences.some((stop: number | string) =>
    typeof stop === "number"
      ? tokens.at(-1) === stop && others.at(-1) === stop
      : [tokens, others].every((each) => tokenizer.decode(each).endsWith(stop)),
  );
}

const isToken = (item: Item): item is number => typeof item === "number";
