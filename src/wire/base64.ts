import { TinkerError } from "../errors.js";

/** Characters that `String.fromCharCode` takes at once. */
const CHUNK_BYTES = 0x8000;

/** Buffer is Node's alone; this works everywhere. */
export function bytesToBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += CHUNK_BYTES)
    binary += String.fromCharCode(...bytes.subarray(start, start + CHUNK_BYTES));
  return btoa(binary);
}

/** Reads standard base64, padded; anything else is an error rather than a silently shorter result. */
export function base64ToBytes(text: string): Uint8Array {
  if (text.length % 4 !== 0)
    throw new TinkerError(`base64 text has ${text.length} characters, not a multiple of 4`);
  const wrong = text.search(/[^A-Za-z0-9+/=]|=[^=]|={3}/);
  if (wrong >= 0) throw new TinkerError(`base64 text has an invalid character at position ${wrong}`);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
