import { EngineInputError } from "../../engine.js";
import type { TokenBytes } from "./token-trie.js";

/** The parts of a Hugging Face `tokenizer.json` that are read. */
interface TokenizerJson {
  model: { vocab?: Record<string, number> | [string, number][] };
  decoder?: Decoder | null;
  added_tokens?: { id: number; content: string }[];
}

interface Decoder {
  type: string;
  decoders?: Decoder[];
}

/** A model's vocabulary as bytes. */
export interface ByteVocabulary {
  readonly bytes: TokenBytes;
  /** Control tokens by name. */
  readonly added: ReadonlyMap<string, number>;
}

/** The bytes of every token, by a model's `tokenizer.json`. */
export function byteVocabulary(tokenizerJson: unknown): ByteVocabulary {
  const json = tokenizerJson as TokenizerJson;
  const decoders = json.decoder ? [json.decoder, ...(json.decoder.decoders ?? [])] : [];
  const toBytes = decoders.some(({ type }) => type === "ByteLevel")
    ? bytesOfByteLevel()
    : decoders.some(({ type }) => type === "ByteFallback")
      ? bytesOfByteFallback
      : undefined;
  const vocab = json.model.vocab;
  if (!toBytes || !vocab) {
    throw new EngineInputError(
      "JSON output needs a tokenizer whose tokens are bytes (ByteLevel or ByteFallback in its tokenizer.json), and this model's is another",
    );
  }
  const added = new Map((json.added_tokens ?? []).map(({ id, content }) => [content, id]));
  const addedIds = new Set(added.values());
  const bytes: (Uint8Array | undefined)[] = [];
  const entries = Array.isArray(vocab)
    ? vocab.map(([text], id) => [text, id] as const)
    : Object.entries(vocab);
  for (const [text, id] of entries) if (!addedIds.has(id)) bytes[id] = toBytes(text);
  return { bytes, added };
}

/** GPT-2's alphabet: a printable character for each byte; undefined for texts that are not written in it. */
function bytesOfByteLevel(): (text: string) => Uint8Array | undefined {
  const bytes = new Map<string, number>();
  let unprintable = 256;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
    bytes.set(String.fromCharCode(isPrintable ? byte : unprintable++), byte);
  }
  return (text) => {
    const found = [...text].map((character) => bytes.get(character));
    return found.includes(undefined) ? undefined : Uint8Array.from(found as number[]);
  };
}

const BYTE_TOKEN = /^<0x([0-9A-F]{2})>$/;
const encoder = new TextEncoder();

/** SentencePiece's way: texts with "▁" for a space, and a token such as `<0x0A>` for each byte. */
function bytesOfByteFallback(text: string): Uint8Array {
  const byte = BYTE_TOKEN.exec(text)?.[1];
  return byte === undefined
    ? encoder.encode(text.replaceAll("▁", " "))
    : Uint8Array.of(Number.parseInt(byte, 16));
}
