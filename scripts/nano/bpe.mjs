// A byte-level BPE: training the merges, encoding and decoding, and reading and writing tokenizer.json.
import { SPECIAL_TOKENS } from "./chat.mjs";

/** Qwen's split pattern as tokenizer.json spells it; one token per digit. */
export const SPLIT_PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// JavaScript on Node 20 has no inline case modifier, so the contractions are written out.
const splitter = new RegExp(
  SPLIT_PATTERN.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"),
  "gu",
);
const specialSplitter = /(<\|endoftext\|>|<\|im_start\|>|<\|im_end\|>)/;

/** Byte-level BPE writes each byte as a printable character: printable ones as themselves, the rest from U+0100. */
const byteToCharacter = (() => {
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
})();
const characterToByte = new Map(byteToCharacter.map((character, byte) => [character, byte]));

const utf8 = new TextEncoder();
const toCharacters = (text) => Array.from(utf8.encode(text), (byte) => byteToCharacter[byte]);

function mergePair(symbols, left, right) {
  const merged = [];
  for (let index = 0; index < symbols.length; index++) {
    if (symbols[index] === left && symbols[index + 1] === right) {
      merged.push(left + right);
      index++;
    } else merged.push(symbols[index]);
  }
  return merged;
}

/** Counts the pieces the split pattern cuts `text` into. */
export function countPieces(text, counts) {
  for (const part of text.split(specialSplitter)) {
    if (SPECIAL_TOKENS.includes(part)) continue;
    for (const [piece] of part.matchAll(splitter)) counts.set(piece, (counts.get(piece) ?? 0) + 1);
  }
}

/** Learns `mergeCount` merges from piece counts; ties go to the pair that sorts first. */
export function trainMerges(counts, mergeCount) {
  let pieces = [...counts].map(([piece, count]) => ({ symbols: toCharacters(piece), count }));
  const merges = [];
  while (merges.length < mergeCount) {
    const pairs = new Map();
    for (const { symbols, count } of pieces)
      for (let index = 1; index < symbols.length; index++) {
        const pair = `${symbols[index - 1]} ${symbols[index]}`;
        pairs.set(pair, (pairs.get(pair) ?? 0) + count);
      }
    let best;
    let bestCount = 0;
    for (const [pair, count] of pairs)
      if (count > bestCount || (count === bestCount && pair < best)) [best, bestCount] = [pair, count];
    const [left, right] = best.split(" ");
    merges.push([left, right]);
    for (const piece of pieces) piece.symbols = mergePair(piece.symbols, left, right);
    pieces = pieces.filter((piece) => piece.symbols.length > 1);
  }
  return merges;
}

/** The content of tokenizer.json for these merges. */
export function tokenizerJson(merges) {
  const vocabulary = {};
  const alphabet = [...byteToCharacter].sort((one, two) => one.charCodeAt(0) - two.charCodeAt(0));
  for (const token of [...alphabet, ...merges.map((pair) => pair.join(""))])
    vocabulary[token] ??= Object.keys(vocabulary).length;
  const size = Object.keys(vocabulary).length;
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: SPECIAL_TOKENS.map((content, index) => ({
      id: size + index,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: { type: "NFC" },
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: SPLIT_PATTERN }, behavior: "Isolated", invert: false },
        byteLevel,
      ],
    },
    post_processor: byteLevel,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: "",
      end_of_word_suffix: "",
      fuse_unk: false,
      byte_fallback: false,
      vocab: vocabulary,
      merges,
    },
  };
}

/** Encodes and decodes with the content of a tokenizer.json written by `tokenizerJson`. */
export class ByteLevelTokenizer {
  #vocabulary;
  #ranks;
  #special;
  #pieces = new Map();
  #texts;

  constructor(json) {
    this.#vocabulary = new Map(Object.entries(json.model.vocab));
    this.#ranks = new Map(json.model.merges.map((pair, rank) => [pair.join(" "), rank]));
    this.#special = new Map(json.added_tokens.map((token) => [token.content, token.id]));
    this.#texts = new Map([...this.#vocabulary].map(([token, id]) => [id, token]));
  }

  get size() {
    return this.#vocabulary.size + this.#special.size;
  }

  idOf(specialToken) {
    return this.#special.get(specialToken);
  }

  encode(text) {
    const ids = [];
    for (const part of text.normalize("NFC").split(specialSplitter)) {
      const special = this.#special.get(part);
      if (special !== undefined) ids.push(special);
      else for (const [piece] of part.matchAll(splitter)) ids.push(...this.#encodePiece(piece));
    }
    return ids;
  }

  #encodePiece(piece) {
    const known = this.#pieces.get(piece);
    if (known) return known;
    let symbols = toCharacters(piece);
    for (;;) {
      let bestRank = Number.POSITIVE_INFINITY;
      let best;
      for (let index = 1; index < symbols.length; index++) {
        const rank = this.#ranks.get(`${symbols[index - 1]} ${symbols[index]}`);
        if (rank !== undefined && rank < bestRank) [bestRank, best] = [rank, index];
      }
      if (best === undefined) break;
      symbols = mergePair(symbols, symbols[best - 1], symbols[best]);
    }
    const ids = symbols.map((symbol) => this.#vocabulary.get(symbol));
    // Invented words never end, so the cache must.
    if (this.#pieces.size > 50_000) this.#pieces.clear();
    this.#pieces.set(piece, ids);
    return ids;
  }

  decode(ids) {
    const bytes = [];
    const special = new Map([...this.#special].map(([content, id]) => [id, content]));
    for (const id of ids) {
      const content = special.get(id);
      if (content !== undefined) bytes.push(...utf8.encode(content));
      else for (const character of this.#texts.get(id)) bytes.push(characterToByte.get(character));
    }
    return new TextDecoder().decode(Uint8Array.from(bytes));
  }
}
