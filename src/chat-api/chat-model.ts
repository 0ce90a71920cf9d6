import type { AnswerPiece } from "../renderers/answer-reader.js";
import type { Message } from "../renderers/messages.js";
import type { ModelFormats } from "../renderers/model-formats.js";
import type { AnswerRequest, PreparedAnswer } from "../renderers/prepare-answer.js";
import type { Renderer } from "../renderers/renderer.js";
import type { TokenEvent, TokenSettings, TokenSource } from "../renderers/token-source.js";
import type { Tokenizer } from "../tokenizers/index.js";
import type { StopReason } from "../wire/index.js";
import type { TokenNames } from "./token-names.js";

/** A model that the chat APIs can ask. */
export interface ChatModel {
  readonly name: string;
  /** Tokens of a prompt and its answer together. */
  readonly maxContextLength: number;
  /** Tokens that end a text with this model, and that its format may not know. */
  readonly endTokens: readonly number[];
  readonly formats: ModelFormats;
  readonly tokenizer: Tokenizer;
  readonly tokenNames: TokenNames;
  /** Fields of `tokenizer_config.json`, where the model has one. */
  tokenizerSettings?(): Promise<object>;
  /**
   * Makes a conversation ready to be answered. What cannot be prepared is a `ConversationError`; a lenient host is then
   * asked again without it, so an attempt that fails leaves nothing behind.
   */
  open(conversation: SentConversation, renderer: Renderer): ChatTurn;
  /** Starts sampling plain prompts and yields their events; ending the iteration cancels them. */
  complete(
    prompts: readonly PlainPrompt[],
    isLive: boolean,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<PromptEvent, void, undefined>;
}

/** A conversation as a client sent it. */
export interface SentConversation extends AnswerRequest {
  /** The ids that the client sent back with the model's messages; see `FinishedAnswer.ids`. */
  readonly ids: ReadonlyMap<Message, readonly string[]>;
}

/** One request in progress: its prompt, its tokens, and the callback for finished answers. */
export interface ChatTurn {
  readonly prepared: PreparedAnswer;
  readonly source: TokenSource;
  /** Called once for each finished answer, before the client has read its end. */
  answered?(answer: FinishedAnswer): void | Promise<void>;
}

/** A finished answer, as it was sampled and as the client received it. */
export interface FinishedAnswer {
  /** Number of the answer, if several were requested. */
  readonly sample: number;
  /** All sampled tokens, also those that only end the answer. */
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly stopReason: StopReason;
  /** The parts of the message in the order in which they were written; calls have their ids. */
  readonly pieces: readonly AnswerPiece[];
  /**
   * Ids under which a client may send the answer back: ids of calls, of items of the Responses API (also inside
   * `encrypted_content`), and signatures of thinking blocks.
   */
  readonly ids: readonly string[];
}

/** A plain prompt and its sampling settings. */
export interface PlainPrompt extends Omit<TokenSettings, "isLive" | "signal"> {
  readonly prompt: readonly number[];
  readonly stopTexts: readonly string[];
  /** Whether the prompt's own tokens get logprobs. Default: no. */
  readonly scoresPrompt?: boolean | undefined;
}

/** An event of one of several prompts. */
export type PromptEvent = TokenEvent & { readonly prompt: number };
