import type { TextTokenizer } from "../tokenizers/index.js";

/** A token as logprobs show it. */
export interface TokenName {
  /** Its text; if its bytes are not whole characters, the bytes: `bytes:\xe2\x82`. */
  readonly text: string;
  readonly bytes: readonly number[];
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes of single tokens. A text decoder cannot give them, because a token may be part of a character. */
export class TokenNames {
  readonly #tokenizer: Pick<TextTokenizer, "decode">;
  readonly #bytes: readonly (Uint8Array | undefined)[];

  /** Tokens without known bytes are named by their text. */
  constructor(tokenizer: Pick<TextTokenizer, "decode">, bytes: readonly (Uint8Array | undefined)[] = []) {
    this.#tokenizer = tokenizer;
    this.#bytes = bytes;
  }

  of(token: number): TokenName {
    const bytes = this.#bytes[token] ?? encoder.encode(this.#tokenizer.decode([token]));
    try {
      return { text: decoder.decode(bytes), bytes: [...bytes] };
    } catch {
      const hex = Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
      return { text: `bytes:${hex.join("")}`, bytes: [...bytes] };
    }
  }
}
