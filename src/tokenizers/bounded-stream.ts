import { TinkerError } from "../errors.js";

/** The pieces of a stream; throws an error that begins with `what` as soon as there are more bytes than allowed. */
export async function* boundedPieces(
  stream: ReadableStream<Uint8Array>,
  maxBytes: number,
  what: string,
): AsyncGenerator<Uint8Array> {
  // Not every browser can iterate over a stream.
  const reader = stream.getReader();
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      bytes += value.length;
      if (bytes > maxBytes)
        throw new TinkerError(`${what} is larger than any tokenizer: more than ${maxBytes} bytes.`);
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** The text of UTF-8 that comes in pieces. */
export async function decodeText(pieces: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of pieces) text += decoder.decode(piece, { stream: true });
  return text + decoder.decode();
}
