import { Tokenizer } from "@huggingface/tokenizers";
import type { TextTokenizer } from "./text-tokenizer.js";

type Json = Readonly<Record<string, unknown>>;

/** The tokenizer of a `tokenizer.json`, with the settings of the `tokenizer_config.json` beside it. */
export function huggingFaceTokenizer(tokenizerJson: Json, settings: Json): TextTokenizer {
  const tokenizer = new Tokenizer(likeRust(tokenizerJson), settings);
  let splitting: Tokenizer | undefined;
  return {
    encode(text, { addSpecialTokens = true, splitSpecialTokens = false } = {}) {
      if (splitSpecialTokens)
        splitting ??= new Tokenizer(likeRust(withoutSpecialTokens(tokenizerJson)), settings);
      const encoder = splitSpecialTokens ? splitting! : tokenizer;
      return encoder.encode(text, { add_special_tokens: addSpecialTokens }).ids;
    },
    // Exactly the text of the tokens: a tidied one could not be encoded again to the same tokens.
    decode: (tokens, { skipSpecialTokens = false } = {}) =>
      tokens.length === 0
        ? ""
        : tokenizer.decode(Array.from(tokens), {
            skip_special_tokens: skipSpecialTokens,
            clean_up_tokenization_spaces: false,
          }),
  };
}

/** Added tokens that are not special, as those around a thought, stay tokens. */
function withoutSpecialTokens(tokenizerJson: Json): Json {
  const added = (tokenizerJson["added_tokens"] ?? []) as readonly { readonly special?: boolean }[];
  return { ...tokenizerJson, added_tokens: added.filter(({ special }) => special !== true) };
}

/** Says in other words what the JavaScript tokenizers would do otherwise than the Rust ones. */
function likeRust(tokenizerJson: Json): Json {
  return {
    ...tokenizerJson,
    pre_tokenizer: withUnicodeSpaces(tokenizerJson["pre_tokenizer"]),
    normalizer: withAstralIdeographs(tokenizerJson["normalizer"]),
  };
}

const GPT2_PIECES = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** The pattern that ByteLevel has built in takes JavaScript's idea of white space; one that is given takes Unicode's. */
function withUnicodeSpaces(preTokenizer: unknown): unknown {
  if (!isObject(preTokenizer)) return preTokenizer;
  if (preTokenizer["type"] === "Sequence" && Array.isArray(preTokenizer["pretokenizers"])) {
    return { ...preTokenizer, pretokenizers: preTokenizer["pretokenizers"].map(withUnicodeSpaces) };
  }
  const { type, use_regex: usesPattern = true, add_prefix_space: addsSpace = true } = preTokenizer;
  // A space that is added goes before the first piece only, which would no longer be known after the split.
  if (type !== "ByteLevel" || usesPattern !== true || addsSpace !== false) return preTokenizer;
  const split = { type: "Split", pattern: { Regex: GPT2_PIECES }, behavior: "Isolated", invert: false };
  return { type: "Sequence", pretokenizers: [split, { ...preTokenizer, use_regex: false }] };
}

/** Ideographs beyond the first plane, around which BERT's normalizer has to put spaces. */
const ASTRAL_IDEOGRAPHS = [
  [0x20000, 0x2a6df],
  [0x2a700, 0x2b81f],
  [0x2b920, 0x2ceaf],
  [0x2f800, 0x2fa1f],
]
  .map((range) => range.map((code) => String.fromCodePoint(code)).join("-"))
  .join("");

function withAstralIdeographs(normalizer: unknown): unknown {
  if (!isObject(normalizer)) return normalizer;
  if (normalizer["type"] === "Sequence" && Array.isArray(normalizer["normalizers"])) {
    return { ...normalizer, normalizers: normalizer["normalizers"].map(withAstralIdeographs) };
  }
  if (normalizer["type"] !== "BertNormalizer" || normalizer["handle_chinese_chars"] === false) {
    return normalizer;
  }
  const spaces = { type: "Replace", pattern: { Regex: `[${ASTRAL_IDEOGRAPHS}]` }, content: " $& " };
  return { type: "Sequence", normalizers: [spaces, normalizer] };
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null;
}
