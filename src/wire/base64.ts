import { TinkerError } from "../errors.js";

// Buffer is Node's alone and btoa/atob go through a string of one character per byte: this works on bytes everywhere.

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PAD = "=".charCodeAt(0);
const INVALID = 255;

const CODE_OF_VALUE = new Uint8Array(64);
const VALUE_OF_CODE = new Uint8Array(256).fill(INVALID);
for (let value = 0; value < 64; value++) {
  const code = ALPHABET.charCodeAt(value);
  CODE_OF_VALUE[value] = code;
  VALUE_OF_CODE[code] = value;
}

const asciiDecoder = new TextDecoder();
const asciiEncoder = new TextEncoder();

export function bytesToBase64(bytes: Uint8Array): string {
  const text = new Uint8Array(Math.ceil(bytes.length / 3) * 4);
  let at = 0;
  let index = 0;
  for (; index + 2 < bytes.length; index += 3) {
    const group = (bytes[index]! << 16) | (bytes[index + 1]! << 8) | bytes[index + 2]!;
    text[at++] = CODE_OF_VALUE[group >> 18]!;
    text[at++] = CODE_OF_VALUE[(group >> 12) & 63]!;
    text[at++] = CODE_OF_VALUE[(group >> 6) & 63]!;
    text[at++] = CODE_OF_VALUE[group & 63]!;
  }
  const left = bytes.length - index;
  if (left > 0) {
    const group = (bytes[index]! << 16) | (left === 2 ? bytes[index + 1]! << 8 : 0);
    text[at++] = CODE_OF_VALUE[group >> 18]!;
    text[at++] = CODE_OF_VALUE[(group >> 12) & 63]!;
    text[at++] = left === 2 ? CODE_OF_VALUE[(group >> 6) & 63]! : PAD;
    text[at++] = PAD;
  }
  return asciiDecoder.decode(text);
}

/** Reads standard base64, padded; anything else is an error rather than a silently shorter result. */
export function base64ToBytes(text: string): Uint8Array {
  const codes = asciiEncoder.encode(text);
  if (codes.length % 4 !== 0)
    throw new TinkerError(`base64 text has ${codes.length} characters, not a multiple of 4`);
  let padding = 0;
  if (codes.length > 0 && codes[codes.length - 1] === PAD) padding = codes[codes.length - 2] === PAD ? 2 : 1;
  const bytes = new Uint8Array((codes.length / 4) * 3 - padding);
  const end = codes.length - padding;
  let at = 0;
  for (let index = 0; index < end; index += 4) {
    const first = valueAt(codes, index);
    const second = valueAt(codes, index + 1);
    const third = index + 2 < end ? valueAt(codes, index + 2) : 0;
    const fourth = index + 3 < end ? valueAt(codes, index + 3) : 0;
    const group = (first << 18) | (second << 12) | (third << 6) | fourth;
    // Writes past the end of a typed array are ignored, which is what the padding asks for.
    bytes[at++] = group >> 16;
    bytes[at++] = (group >> 8) & 255;
    bytes[at++] = group & 255;
  }
  return bytes;
}

function valueAt(codes: Uint8Array, index: number): number {
  const value = VALUE_OF_CODE[codes[index]!]!;
  if (value === INVALID) throw new TinkerError(`base64 text has an invalid character at position ${index}`);
  return value;
}
