import { Tokenizer } from "@huggingface/tokenizers";
import { checkPattern } from "./check-pattern.js";
import type { TextTokenizer } from "./text-tokenizer.js";
import { rememberWords } from "./word-cache.js";

/** A sequence in a sequence, its list, its element, the pattern. */
const MAX_PART_DEPTH = 8;

type Json = Readonly<Record<string, unknown>>;

interface AddedToken {
  readonly content: string;
  readonly special?: boolean;
}

/** The tokenizer of a `tokenizer.json`, with the settings of the `tokenizer_config.json` beside it. */
export function huggingFaceTokenizer(tokenizerJson: Json, settings: Json): TextTokenizer {
  const tokenizer = newTokenizer(tokenizerJson, settings);
  const added = (tokenizerJson["added_tokens"] ?? []) as readonly AddedToken[];
  const without = (isLeftOut: (token: AddedToken) => boolean) => {
    const occurs = anyOf(added.filter(isLeftOut).map(({ content }) => content));
    let made: Tokenizer | undefined;
    return (text: string) => {
      // Another tokenizer takes long to make, and few texts need it.
      if (!occurs.test(text)) return tokenizer;
      const kept = added.filter((token) => !isLeftOut(token));
      made ??= newTokenizer({ ...tokenizerJson, added_tokens: kept }, settings);
      return made;
    };
  };
  const withoutAdded = without(() => true);
  // Added tokens that are not special, as those around a thought, stay tokens.
  const withoutSpecial = without(({ special }) => special === true);
  return {
    encode(text, { addSpecialTokens = true, splitSpecialTokens = false, plainText = false } = {}) {
      const encoder = plainText ? withoutAdded(text) : splitSpecialTokens ? withoutSpecial(text) : tokenizer;
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

function newTokenizer(tokenizerJson: Json, settings: Json): Tokenizer {
  const tokenizer = new Tokenizer(likeRust(tokenizerJson), settings);
  for (const place of ["normalizer", "pre_tokenizer", "post_processor", "decoder"] as const)
    for (const pattern of patternsIn(tokenizer[place])) checkPattern(pattern, place);
  rememberWords(tokenizer);
  return tokenizer;
}

/** The patterns as they will be run, which are not always those of the file. */
function* patternsIn(part: unknown, depth = 0): Generator<string> {
  if (part instanceof RegExp) yield part.source;
  // The parts are functions with properties.
  else if ((isObject(part) || typeof part === "function") && depth < MAX_PART_DEPTH)
    for (const value of Object.values(part)) yield* patternsIn(value, depth + 1);
}

/** Matches a text that has one of these in it. */
function anyOf(texts: readonly string[]): RegExp {
  if (texts.length === 0) return /(?!)/;
  const escaped = texts.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
  return new RegExp(escaped.join("|"));
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
