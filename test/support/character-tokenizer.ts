import type { RendererTokenizer } from "../../src/renderers/index.js";
import type { EncodeOptions } from "../../src/tokenizers/index.js";

/** The first of the tokens that are not characters. */
export const FIRST_ADDED = 0x110000;

/** Tokens of the families of models that their tokenizers call special: text that is split knows them no more. */
export const SPECIAL_TOKENS: readonly string[] = [
  ...["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
  ...["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>"],
  ...["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜System｜>"],
  ...["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
  ...["<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"],
  ...["<|media_begin|>", "<|media_content|>", "<|media_end|>"],
  ...["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"],
  ...["<|message_system|>", "<|message_user|>", "<|message_model|>", "<|message_tool|>", "<|end_message|>"],
  ...["<|content_text|>", "<|content_thinking|>", "<|content_invoke_tool_json|>"],
  ...["<|content_invoke_tool_text|>", "<|content_tool_error|>", "<|content_xml|>", "<|content_image|>"],
  ...["<|content_model_end_sampling|>", "<|unused|>"],
];

/** Tokens of the families that are added and not special. */
export const PLAIN_TOKENS: readonly string[] = [
  ...["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
  ...["<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
  ...["<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"],
  ...["<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "｜DSML｜"],
  ...["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<img>", "</img>"],
  ...["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"],
  ...["<|tool_call_argument_begin|>", "<|tool_call_end|>"],
];

/**
 * A vocabulary that fits every family: each of their tokens is one token, and so is every other character. What it
 * decodes it encodes to the same tokens again.
 */
export class CharacterTokenizer implements RendererTokenizer {
  readonly bosToken: string | undefined;
  readonly eosToken: string;
  readonly #added: readonly string[];
  readonly #ids: ReadonlyMap<string, number>;
  readonly #anyAdded: RegExp;
  readonly #plainAdded = pattern(PLAIN_TOKENS);

  /** `special`: the special tokens. Default: those of all families. */
  constructor(
    { bosToken, eosToken }: { readonly bosToken?: string; readonly eosToken: string },
    special: readonly string[] = SPECIAL_TOKENS,
  ) {
    this.bosToken = bosToken;
    this.eosToken = eosToken;
    this.#added = [...special, ...PLAIN_TOKENS];
    this.#ids = new Map(this.#added.map((text, index) => [text, FIRST_ADDED + index]));
    this.#anyAdded = pattern(this.#added);
  }

  encode(
    text: string,
    { addSpecialTokens = true, splitSpecialTokens = false, plainText = false }: EncodeOptions = {},
  ): number[] {
    const tokens = addSpecialTokens && this.bosToken !== undefined ? [this.#ids.get(this.bosToken)!] : [];
    // A pattern in brackets keeps what it splits at: every second piece is an added token.
    const pieces = plainText ? [text] : text.split(splitSpecialTokens ? this.#plainAdded : this.#anyAdded);
    for (const [index, piece] of pieces.entries()) {
      if (index % 2 === 1) tokens.push(this.#ids.get(piece)!);
      else for (const character of piece) tokens.push(character.codePointAt(0)!);
    }
    return tokens;
  }

  decode(tokens: ArrayLike<number>): string {
    return Array.from(tokens, (token) =>
      token >= FIRST_ADDED ? this.#added[token - FIRST_ADDED] : String.fromCodePoint(token),
    ).join("");
  }
}

function pattern(texts: readonly string[]): RegExp {
  const longestFirst = [...texts].sort((left, right) => right.length - left.length);
  const beginnings = [...new Set(texts.map((text) => escapeRegExp(text[0]!)))].join("");
  return new RegExp(`(?=[${beginnings}])(${longestFirst.map(escapeRegExp).join("|")})`);
}

function escapeRegExp(text: string): string {
  return text.replace(/[|\\{}()[\]^$+*?./]/g, "\\$&");
}
