import { boolean, type FieldsOf, optional, optionTable } from "../wire/index.js";

/** How a text becomes tokens. */
export interface EncodeOptions {
  /** `false` leaves out what the tokenizer puts around a whole text (Llama's first token, for one). Default: true. */
  readonly addSpecialTokens?: boolean | undefined;
  /** `true` reads special tokens that are written out in the text as ordinary text. Default: false. */
  readonly splitSpecialTokens?: boolean | undefined;
  /** `true` reads all added tokens in the text as ordinary text, also those like `<think>` that are not special. Default: false. */
  readonly plainText?: boolean | undefined;
}

/** How tokens become a text. */
export interface DecodeOptions {
  /** `true` leaves out tokens such as the end of a turn. Default: false. */
  readonly skipSpecialTokens?: boolean | undefined;
}

/** The option table of `encode` and `encodeBatch`. */
export const ENCODE_OPTIONS = optionTable({
  addSpecialTokens: optional(boolean),
  splitSpecialTokens: optional(boolean),
  plainText: optional(boolean),
} satisfies FieldsOf<EncodeOptions>);

/** The option table of `decode` and `decodeStream`. */
export const DECODE_OPTIONS = optionTable({
  skipSpecialTokens: optional(boolean),
} satisfies FieldsOf<DecodeOptions>);

/** Converts text to tokens and back, for every kind of tokenizer file. */
export interface TextTokenizer {
  /** Special tokens written out in the text become those tokens. */
  encode(text: string, options?: EncodeOptions): number[];
  decode(tokens: ArrayLike<number>, options?: DecodeOptions): string;
}
