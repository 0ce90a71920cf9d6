/** How a text becomes tokens. */
export interface EncodeOptions {
  /** `false` leaves out what the tokenizer puts around a whole text (Llama's first token, for one). Default: true. */
  readonly addSpecialTokens?: boolean | undefined;
  /** `true` reads special tokens that are written out in the text as ordinary text. Default: false. */
  readonly splitSpecialTokens?: boolean | undefined;
}

/** How tokens become a text. */
export interface DecodeOptions {
  /** `true` leaves out tokens such as the end of a turn. Default: false. */
  readonly skipSpecialTokens?: boolean | undefined;
}

/** Text in and out of tokens, whatever the file it was made from. */
export interface TextTokenizer {
  /** Special tokens written out in the text become those tokens. */
  encode(text: string, options?: EncodeOptions): number[];
  decode(tokens: ArrayLike<number>, options?: DecodeOptions): string;
}
