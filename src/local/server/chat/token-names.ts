import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TextTokenizer } from "../../../tokenizers/index.js";

/** A token as logprobs show it. */
export interface TokenName {
  /** Its text; where its bytes are no whole characters, these: `bytes:\xe2\x82`. */
  readonly text: string;
  readonly bytes: readonly number[];
}

const BYTE_TOKEN = /^<0x([0-9A-F]{2})>$/;
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes of single tokens, which a decoder of texts cannot give: a token may be part of a character. */
export class TokenNames {
  readonly #tokenizer: TextTokenizer;
  readonly #pieces: ReadonlyMap<number, string>;
  readonly #added: ReadonlyMap<number, string>;
  readonly #isByteLevel: boolean;

  /** Reads the vocabulary in a model's folder. */
  constructor(folder: string, tokenizer: TextTokenizer) {
    this.#tokenizer = tokenizer;
    const file = JSON.parse(readFileSync(join(folder, "tokenizer.json"), "utf8")) as TokenizerFile;
    const vocabulary = file.model?.vocab ?? {};
    const pieces: [string, number][] = Array.isArray(vocabulary)
      ? vocabulary.map(([piece], id) => [piece, id])
      : Object.entries(vocabulary);
    this.#pieces = new Map(pieces.map(([piece, id]) => [id, piece]));
    this.#added = new Map(file.added_tokens?.map(({ id, content }) => [id, content]));
    this.#isByteLevel = JSON.stringify(file.decoder ?? null).includes("ByteLevel");
  }

  of(token: number): TokenName {
    const bytes = this.#bytes(token);
    try {
      return { text: decoder.decode(Uint8Array.from(bytes)), bytes };
    } catch {
      const hex = bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
      return { text: `bytes:${hex.join("")}`, bytes };
    }
  }

  #bytes(token: number): readonly number[] {
    const added = this.#added.get(token);
    const piece = this.#pieces.get(token);
    if (added !== undefined || piece === undefined)
      return [...encoder.encode(added ?? this.#tokenizer.decode([token]))];
    if (this.#isByteLevel) return [...piece].map((character) => BYTE_OF.get(character) ?? 0x3f);
    const byte = BYTE_TOKEN.exec(piece)?.[1];
    return byte === undefined ? [...encoder.encode(piece.replaceAll("▁", " "))] : [Number.parseInt(byte, 16)];
  }
}

interface TokenizerFile {
  readonly model?: {
    readonly vocab?: Readonly<Record<string, number>> | readonly (readonly [string, number])[];
  };
  readonly added_tokens?: readonly { readonly id: number; readonly content: string }[];
  readonly decoder?: unknown;
}

/** Byte-level vocabularies write each byte as a character that can be seen: itself, or one from 0x100 on. */
const BYTE_OF: ReadonlyMap<string, number> = new Map(visibleBytes());

function visibleBytes(): [string, number][] {
  const isVisible = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => [
    String.fromCodePoint(isVisible(byte) ? byte : next++),
    byte,
  ]);
}
