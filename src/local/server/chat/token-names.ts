import type { TextTokenizer } from "../../../tokenizers/index.js";
import { EngineInputError } from "../../engine/engine.js";
import { byteVocabulary } from "../../engine/sampling/json/token-bytes.js";
import { readTokenizerJson } from "../../tokenizer.js";

/** A token as logprobs show it. */
export interface TokenName {
  /** Its text; where its bytes are no whole characters, these: `bytes:\xe2\x82`. */
  readonly text: string;
  readonly bytes: readonly number[];
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes of single tokens, which a decoder of texts cannot give: a token may be part of a character. */
export class TokenNames {
  readonly #tokenizer: TextTokenizer;
  readonly #bytes: readonly (Uint8Array | undefined)[];

  /** Reads the vocabulary in a model's folder; tokens of one that is not made of bytes are called by their texts. */
  constructor(folder: string, tokenizer: TextTokenizer) {
    this.#tokenizer = tokenizer;
    try {
      this.#bytes = byteVocabulary(readTokenizerJson(folder)).bytes;
    } catch (error) {
      if (!(error instanceof EngineInputError)) throw error;
      this.#bytes = [];
    }
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
