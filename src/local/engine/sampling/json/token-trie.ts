import type { Steps } from "./steps.js";

/** The bytes of each token that is text; undefined for those that are not, such as the end of a turn. */
export type TokenBytes = readonly (Uint8Array | undefined)[];

/** A vocabulary as a tree of bytes: a common beginning of tokens is visited once. */
export class TokenTrie {
  /** By node, each before its children: its last byte, how many bytes lead to it, and the first node that is not below it. */
  readonly bytes: Uint8Array;
  readonly depths: Uint16Array;
  readonly ends: Int32Array;
  /** Tokens of node i: `tokens` from `tokenStarts[i]` to `tokenStarts[i + 1]`. */
  readonly tokenStarts: Int32Array;
  readonly tokens: Int32Array;
  /** One more than the highest token. */
  readonly size: number;
  /** Tokens of every length from one to this many characters need no escape in a JSON string. */
  readonly plainRun: number;
  /** By byte, the node of the tokens that begin with it; -1 where there are none. */
  readonly #first = new Int32Array(256).fill(-1);

  constructor(tokenBytes: TokenBytes) {
    const order: number[] = [];
    tokenBytes.forEach((bytes, token) => {
      if (bytes && bytes.length > 0) order.push(token);
    });
    order.sort((a, b) => compareBytes(tokenBytes[a]!, tokenBytes[b]!) || a - b);
    this.size = tokenBytes.length;
    this.tokens = Int32Array.from(order);
    const bytes: number[] = [];
    const depths: number[] = [];
    const ends: number[] = [];
    const tokenStarts: number[] = [];
    /** The nodes that lead to the last token. */
    const path: number[] = [];
    let previous: Uint8Array = new Uint8Array();
    order.forEach((token, at) => {
      const current = tokenBytes[token]!;
      let shared = 0;
      while (shared < previous.length && previous[shared] === current[shared]) shared += 1;
      while (path.length > shared) ends[path.pop()!] = bytes.length;
      for (let depth = shared; depth < current.length; depth++) {
        path.push(bytes.length);
        bytes.push(current[depth]!);
        depths.push(depth + 1);
        tokenStarts.push(at);
      }
      previous = current;
    });
    for (const node of path) ends[node] = bytes.length;
    for (let node = 0; node < bytes.length; node = ends[node]!) this.#first[bytes[node]!] = node;
    tokenStarts.push(order.length);
    this.bytes = Uint8Array.from(bytes);
    this.depths = Uint16Array.from(depths);
    this.ends = Int32Array.from(ends);
    this.tokenStarts = Int32Array.from(tokenStarts);
    const runs = new Set(
      order.map((token) => tokenBytes[token]!).map((plain) => (isPlain(plain) ? plain.length : 0)),
    );
    let plainRun = 0;
    while (runs.has(plainRun + 1)) plainRun += 1;
    this.plainRun = plainRun;
  }

  /** Whether a token consists of this byte alone. */
  hasByte(byte: number): boolean {
    const node = this.#first[byte]!;
    return node >= 0 && this.#hasTokens(node);
  }

  /** Where tokens end that are found in `text` from `at` on; every node that is looked at takes a step. */
  *endsFrom(text: Uint8Array, at: number, steps: Steps): Generator<number> {
    let node = at < text.length ? this.#first[text[at]!]! : -1;
    let last = node < 0 ? 0 : this.ends[node]!;
    for (let end = at; end < text.length; end++) {
      let looks = 1;
      for (; node >= 0 && node < last && this.bytes[node] !== text[end]; node = this.ends[node]!) looks += 1;
      steps.take(looks);
      if (node < 0 || node >= last) return;
      if (this.#hasTokens(node)) yield end + 1;
      last = this.ends[node]!;
      node += 1;
    }
  }

  #hasTokens(node: number): boolean {
    return this.tokenStarts[node + 1]! > this.tokenStarts[node]!;
  }
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shared = Math.min(a.length, b.length);
  for (let i = 0; i < shared; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}

/** ASCII that needs no backslash. */
function isPlain(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c);
}
