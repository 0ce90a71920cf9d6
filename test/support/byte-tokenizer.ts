import type { RendererTokenizer } from "../../src/renderers/index.js";
import type { EncodeOptions } from "../../src/tokenizers/index.js";
import { CharacterTokenizer, FIRST_ADDED, PLAIN_TOKENS, SPECIAL_TOKENS } from "./character-tokenizer.js";

const ADDED = [...SPECIAL_TOKENS, ...PLAIN_TOKENS];
const BYTES = 256;

/** A vocabulary of all bytes and the tokens of every family, for engines that work on bytes. */
export class ByteTokenizer implements RendererTokenizer {
  static readonly vocabSize = BYTES + ADDED.length;
  readonly eosToken = "<|im_end|>";
  readonly #characters = new CharacterTokenizer({ eosToken: this.eosToken });

  encode(text: string, options: EncodeOptions = {}): number[] {
    return this.#characters
      .encode(text, { ...options, addSpecialTokens: false })
      .flatMap((token) =>
        token >= FIRST_ADDED ? [token - FIRST_ADDED + BYTES] : [...Buffer.from(String.fromCodePoint(token))],
      );
  }

  decode(tokens: ArrayLike<number>): string {
    return Buffer.concat(
      Array.from(tokens, (token) =>
        token < BYTES ? Buffer.of(token) : Buffer.from(ADDED[token - BYTES] ?? ""),
      ),
    ).toString();
  }

  /** As a `tokenizer.json` says it. */
  get json(): object {
    const alphabet = new Map<number, string>();
    let unprintable = BYTES;
    for (let byte = 0; byte < BYTES; byte++) {
      const isPrintable = /^[!-~¡-¬®-ÿ]$/.test(String.fromCharCode(byte));
      alphabet.set(byte, String.fromCharCode(isPrintable ? byte : unprintable++));
    }
    return {
      model: { vocab: Object.fromEntries([...alphabet].map(([byte, text]) => [text, byte])) },
      decoder: { type: "ByteLevel" },
      added_tokens: ADDED.map((content, index) => ({ id: BYTES + index, content })),
    };
  }
}
