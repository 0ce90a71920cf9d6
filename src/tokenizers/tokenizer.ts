import { TinkerError } from "../errors.js";
import { boolean, optional, optionTable } from "../wire/index.js";
import { BatchEncoder } from "./batch-encoder.js";
import {
  CHAT_TEMPLATE_FIELDS,
  type ChatMessage,
  type ChatTemplateOptions,
  type RenderChat,
} from "./chat-template.js";
import { DecodeStream } from "./decode-stream.js";
import type { TokenizerFiles } from "./files.js";
import {
  DECODE_OPTIONS,
  type DecodeOptions,
  ENCODE_OPTIONS,
  type EncodeOptions,
  type TextTokenizer,
} from "./text-tokenizer.js";

export interface TokenizerParts {
  readonly name: string;
  readonly text: TextTokenizer;
  readonly renderChat: RenderChat | null;
  readonly bosToken: string | undefined;
  readonly eosToken: string | undefined;
  readonly files: TokenizerFiles;
}

const CHAT_OPTIONS = optionTable({ ...CHAT_TEMPLATE_FIELDS, tokenize: optional(boolean) });

/** Text in and out of a model's tokens. Made by `loadTokenizer`, `tokenizerForModel` or a client's `getTokenizer`. */
export class Tokenizer implements TextTokenizer {
  /** The id or folder it was loaded from. */
  readonly name: string;
  /** The token that begins a text, where the model has one. */
  readonly bosToken: string | undefined;
  /** The token that ends a text, where the model has one. */
  readonly eosToken: string | undefined;
  readonly #text: TextTokenizer;
  readonly #renderChat: RenderChat | null;
  readonly #batches: BatchEncoder;

  /** @internal */
  constructor({ name, text, renderChat, bosToken, eosToken, files }: TokenizerParts) {
    this.name = name;
    this.bosToken = bosToken;
    this.eosToken = eosToken;
    this.#text = text;
    this.#renderChat = renderChat;
    this.#batches = new BatchEncoder(text, files);
  }

  /** The tokens of a text. Special tokens that are written out in it become those tokens. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    return this.#text.encode(text, ENCODE_OPTIONS.check(options, "encode"));
  }

  /** The tokens of many texts; a large batch is worked on in another thread, so that this one stays free. */
  async encodeBatch(texts: readonly string[], options: EncodeOptions = {}): Promise<number[][]> {
    return this.#batches.encode(texts, ENCODE_OPTIONS.check(options, "encodeBatch"));
  }

  /** The text of tokens, not tidied in any way. */
  decode(tokens: ArrayLike<number>, options: DecodeOptions = {}): string {
    return this.#text.decode(tokens, DECODE_OPTIONS.check(options, "decode"));
  }

  /** For tokens that come one by one: gives their text as soon as it is certain, and never half a character. */
  decodeStream(options: DecodeOptions = {}): DecodeStream {
    return new DecodeStream(this.#text, DECODE_OPTIONS.check(options, "decodeStream"));
  }

  get hasChatTemplate(): boolean {
    return this.#renderChat !== null;
  }

  /** A conversation as the model was trained to read it: its tokens, or its text with `tokenize: false`. */
  applyChatTemplate(
    messages: readonly ChatMessage[],
    options: ChatTemplateOptions & { readonly tokenize: false },
  ): string;
  applyChatTemplate(
    messages: readonly ChatMessage[],
    options?: ChatTemplateOptions & { readonly tokenize?: true | undefined },
  ): number[];
  applyChatTemplate(
    messages: readonly ChatMessage[],
    options: ChatTemplateOptions & { readonly tokenize?: boolean | undefined } = {},
  ): number[] | string {
    if (this.#renderChat === null) {
      throw new TinkerError(
        `The tokenizer of ${this.name} has no chat template. Write the conversation yourself and encode it.`,
      );
    }
    const { tokenize, ...settings } = CHAT_OPTIONS.check(options, "applyChatTemplate");
    const text = this.#renderChat(messages, settings);
    // The template writes the special tokens itself.
    return tokenize === false ? text : this.#text.encode(text, { addSpecialTokens: false });
  }
}
