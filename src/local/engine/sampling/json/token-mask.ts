import type { Recognizer, State } from "./recognizer.js";
import type { TokenTrie } from "./token-trie.js";

/** The tokens that may come next. */
export interface TokenMask {
  /** A bit for each token. */
  readonly bits: Uint32Array;
  /** Maximum number of tokens to the end after one of these. */
  readonly highestCost: number;
}

/** Walks the vocabulary from a state: tokens after which the text can end within `maxCost` tokens. */
export function tokenMask(recognizer: Recognizer, state: State, trie: TokenTrie, maxCost: number): TokenMask {
  const others = state.stacks.flatMap(({ node }) => (node?.kind === "token" ? [node.token] : []));
  const size = others.reduce((most, token) => Math.max(most, token + 1), trie.size);
  const bits = new Uint32Array(Math.ceil(size / 32));
  const { bytes, depths, ends, tokenStarts, tokens } = trie;
  const path: State[] = [state];
  let highestCost = 0;
  for (let node = 0; node < bytes.length; ) {
    const depth = depths[node]!;
    const byte = bytes[node]!;
    const before = path[depth - 1]!;
    const known = before.next[byte];
    const next = known === undefined ? recognizer.advance(before, byte) : known;
    if (next === null) {
      node = ends[node]!;
      continue;
    }
    path[depth] = next;
    // Where no end can be reached at all, only what follows in the same token may help.
    if (next.cost <= maxCost && next.cost < Number.POSITIVE_INFINITY) {
      for (let at = tokenStarts[node]!; at < tokenStarts[node + 1]!; at++) {
        const token = tokens[at]!;
        bits[token >>> 5]! |= 1 << (token & 31);
        if (next.cost > highestCost) highestCost = next.cost;
      }
    }
    node += 1;
  }
  for (const token of new Set(others)) {
    const next = recognizer.advanceToken(state, token);
    if (next === null || next.cost > maxCost || next.cost === Number.POSITIVE_INFINITY) continue;
    bits[token >>> 5]! |= 1 << (token & 31);
    if (next.cost > highestCost) highestCost = next.cost;
  }
  return { bits, highestCost };
}

/** A broken model may give only NaN: the allowed tokens are drawn all the same. */
const LOWEST_LOGIT = -1e30;

/** The logits of the tokens in a mask, and of `others`; the rest can never be drawn. Returns how many can. */
export function maskedLogits(
  logits: Float32Array,
  bits: Uint32Array | undefined,
  others: readonly number[],
  masked: Float32Array,
): number {
  let count = 0;
  masked.fill(Number.NEGATIVE_INFINITY);
  const allow = (token: number) => {
    count += 1;
    masked[token] = logits[token]! > LOWEST_LOGIT ? logits[token]! : LOWEST_LOGIT;
  };
  for (let word = 0; bits && word < bits.length; word++) {
    // The lowest bit that is left, one after another.
    for (let left = bits[word]!; left !== 0; left &= left - 1) {
      allow(word * 32 + 31 - Math.clz32(left & -left));
    }
  }
  for (const token of others) allow(token);
  return count;
}
