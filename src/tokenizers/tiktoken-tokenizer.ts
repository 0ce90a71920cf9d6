import { TinkerError } from "../errors.js";
import { base64ToBytes } from "../wire/index.js";
import { bytePairMerge } from "./byte-pair-merge.js";
import { splitLongRuns } from "./split-long-runs.js";
import type { TextTokenizer } from "./text-tokenizer.js";

const LETTERS_BEFORE = String.raw`[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]--[\p{Script=Han}]]`;
const LETTERS_AFTER = String.raw`[[\p{Ll}\p{Lm}\p{Lo}\p{M}]--[\p{Script=Han}]]`;
// Written out: not every engine has (?i:...) yet. U+017F is another s when case does not count.
const ENDING = "(?:'[sS\u017F]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
const NO_LETTER = String.raw`[^\r\n\p{L}\p{N}]?`;
/** How the Kimi models cut text into the pieces within which bytes are merged. */
const KIMI_PIECES = [
  String.raw`\p{Script=Han}+`,
  `${NO_LETTER}${LETTERS_BEFORE}*${LETTERS_AFTER}+${ENDING}`,
  `${NO_LETTER}${LETTERS_BEFORE}+${LETTERS_AFTER}*${ENDING}`,
  String.raw`\p{N}{1,3}`,
  String.raw` ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*`,
  String.raw`\p{White_Space}*[\r\n]+`,
  String.raw`\p{White_Space}+(?!\P{White_Space})`,
  String.raw`\p{White_Space}+`,
].join("|");

const RESERVED_TOKENS = 256;
const MAX_CACHED_PIECES = 20_000;
const MAX_CACHED_PIECE_LENGTH = 64;

interface AddedToken {
  readonly content: string;
  readonly special: boolean;
}

/**
 * The tokenizer of a `tiktoken.model` (a line for each token: its bytes in base64, a space, its rank), with the
 * pattern of the Kimi models and the names that `tokenizer_config.json` gives to the tokens behind the last rank.
 */
export function tiktokenTokenizer(model: string, settings: Readonly<Record<string, unknown>>): TextTokenizer {
  const { ranks, bytesOf } = readRanks(model);
  const added = addedTokens(bytesOf.length, settings);
  const idOf = new Map([...added].map(([id, { content }]) => [content, id]));
  const specials = anyOf([...idOf.keys()]);
  const notSpecial = anyOf([...added.values()].flatMap(({ content, special }) => (special ? [] : [content])));
  const pieces = new RegExp(KIMI_PIECES, "gv");
  const encoder = new TextEncoder();
  const cache = new Map<string, number[]>();

  function encodePiece(piece: string): number[] {
    const cached = cache.get(piece);
    if (cached !== undefined) return cached;
    const tokens = bytePairMerge(latin1(encoder.encode(piece)), ranks);
    if (piece.length <= MAX_CACHED_PIECE_LENGTH) {
      if (cache.size >= MAX_CACHED_PIECES) cache.clear();
      cache.set(piece, tokens);
    }
    return tokens;
  }

  function encodeOrdinary(text: string, tokens: number[]): void {
    for (const piece of text.match(pieces) ?? []) for (const token of encodePiece(piece)) tokens.push(token);
  }

  return {
    // Kimi puts nothing around a text, so that there is nothing to leave out.
    encode(text, { splitSpecialTokens = false, plainText = false } = {}) {
      const tokens: number[] = [];
      const signs = splitSpecialTokens ? notSpecial : specials;
      for (const part of splitLongRuns(text)) {
        let start = 0;
        for (const match of plainText ? [] : part.matchAll(signs)) {
          encodeOrdinary(part.slice(start, match.index), tokens);
          tokens.push(idOf.get(match[0])!);
          start = match.index + match[0].length;
        }
        encodeOrdinary(part.slice(start), tokens);
      }
      return tokens;
    },

    decode(tokens, { skipSpecialTokens = false } = {}) {
      const parts: Uint8Array[] = [];
      for (let index = 0; index < tokens.length; index++) {
        const token = tokens[index]!;
        const name = added.get(token);
        if (name !== undefined) {
          if (!(skipSpecialTokens && name.special)) parts.push(encoder.encode(name.content));
          continue;
        }
        const bytes = bytesOf[token];
        if (bytes === undefined) throw new TinkerError(`This tokenizer has no token ${token}.`);
        parts.push(bytes);
      }
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(concatenate(parts));
    },
  };
}

/** Tokens by their bytes, each byte as one character of a text, since texts make good keys of a map. */
function readRanks(model: string): { ranks: Map<string, number>; bytesOf: Uint8Array[] } {
  const ranks = new Map<string, number>();
  const bytesOf: Uint8Array[] = [];
  for (const [index, line] of model.split("\n").entries()) {
    if (line.trim() === "") continue;
    const [, token, rank] = /^(\S+) (\d+)\s*$/.exec(line) ?? [];
    if (token === undefined) {
      throw new TinkerError(`Line ${index + 1} of tiktoken.model is not a token in base64 and its rank.`);
    }
    const bytes = base64ToBytes(token);
    ranks.set(latin1(bytes), Number(rank));
    bytesOf[Number(rank)] = bytes;
  }
  if (ranks.size === 0) throw new TinkerError("tiktoken.model holds no tokens.");
  return { ranks, bytesOf };
}

function addedTokens(first: number, settings: Readonly<Record<string, unknown>>): Map<number, AddedToken> {
  const named = (settings["added_tokens_decoder"] ?? {}) as Record<string, Partial<AddedToken>>;
  const added = new Map<number, AddedToken>();
  for (let id = first; id < first + RESERVED_TOKENS; id++) {
    const { content, special } = named[id] ?? {};
    // The reserved ones are known to tiktoken only, not to transformers, which therefore never leaves them out.
    added.set(id, { content: content ?? `<|reserved_token_${id}|>`, special: special ?? false });
  }
  return added;
}

function latin1(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function concatenate(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

function anyOf(texts: readonly string[]): RegExp {
  const longestFirst = [...texts].sort((a, b) => b.length - a.length);
  return new RegExp(longestFirst.map(escapeRegExp).join("|"), "g");
}

const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
