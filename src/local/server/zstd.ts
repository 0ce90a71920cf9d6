import * as zlib from "node:zlib";
import { Decompress } from "fzstd";
import { HttpError } from "./http-error.js";

const FRAME_MAGIC = 0xfd2fb528;
const LARGEST_BLOCK_BYTES = 128 * 1024;
/** What every decoder has to take. */
const EVERYDAY_WINDOW_BYTES = 8 * 2 ** 20;

function tooLarge(limitBytes: number): HttpError {
  return new HttpError(
    413,
    `The request body decompresses to more than ${limitBytes} bytes, the limit of this server.`,
  );
}

function broken(why: string): HttpError {
  return new HttpError(400, `The request body is not valid zstd: ${why}.`);
}

interface FrameHeader {
  /** Where the first block begins. */
  readonly end: number;
  readonly windowBytes: number;
  readonly contentBytes: number | undefined;
  readonly hasChecksum: boolean;
}

function readFrameHeader(bytes: Uint8Array, start: number): FrameHeader {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let offset = start;
  const need = (count: number) => {
    if (offset + count > bytes.length) throw broken("it ends too early");
  };
  need(5);
  if (view.getUint32(offset, true) !== FRAME_MAGIC)
    throw broken("a frame does not begin with the magic number");
  const flags = bytes[offset + 4]!;
  offset += 5;
  const singleSegment = (flags >> 5) & 1;
  const sizeFlag = flags >> 6;
  let windowBytes = 0;
  if (singleSegment === 0) {
    need(1);
    const descriptor = bytes[offset++]!;
    const base = 2 ** (10 + (descriptor >> 3));
    windowBytes = base + (base / 8) * (descriptor & 7);
  }
  offset += [0, 1, 2, 4][flags & 3]!;
  const sizeBytes = sizeFlag === 0 ? singleSegment : 2 ** sizeFlag;
  need(sizeBytes);
  let contentBytes: number | undefined;
  if (sizeBytes === 1) contentBytes = bytes[offset]!;
  else if (sizeBytes === 2) contentBytes = view.getUint16(offset, true) + 256;
  else if (sizeBytes === 4) contentBytes = view.getUint32(offset, true);
  else if (sizeBytes === 8)
    contentBytes = view.getUint32(offset, true) + view.getUint32(offset + 4, true) * 2 ** 32;
  if (singleSegment === 1) windowBytes = contentBytes ?? 0;
  return {
    end: offset + sizeBytes,
    windowBytes,
    contentBytes,
    hasChecksum: ((flags >> 2) & 1) === 1,
  };
}

/**
 * Walks the frames without decompressing: a header alone can ask for gigabytes of window, so that has to be
 * refused before any decoder reads it. Returns an upper bound of the decompressed size.
 */
export function checkZstdFrames(bytes: Uint8Array, limitBytes: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let offset = 0;
  let total = 0;
  const need = (count: number) => {
    if (offset + count > bytes.length) throw broken("it ends too early");
  };
  while (offset < bytes.length) {
    need(4);
    if (view.getUint32(offset, true) >>> 4 === 0x184d2a5) {
      need(8);
      offset += 8 + view.getUint32(offset + 4, true);
      need(0);
      continue;
    }
    const { end, windowBytes, contentBytes, hasChecksum } = readFrameHeader(bytes, offset);
    offset = end;
    if ((contentBytes ?? 0) > limitBytes) throw tooLarge(limitBytes);
    // Compressors round the window up to a power of two.
    if (windowBytes > Math.max(2 * limitBytes, EVERYDAY_WINDOW_BYTES)) throw tooLarge(limitBytes);
    let frameBytes = 0;
    for (let last = false; !last; ) {
      need(3);
      const header = bytes[offset]! | (bytes[offset + 1]! << 8) | (bytes[offset + 2]! << 16);
      offset += 3;
      last = (header & 1) === 1;
      const type = (header >> 1) & 3;
      const size = header >> 3;
      if (type === 3) throw broken("a block has the reserved type");
      if (size > LARGEST_BLOCK_BYTES) throw broken("a block is larger than 128 KiB");
      offset += type === 1 ? 1 : size;
      need(0);
      frameBytes += type === 2 ? LARGEST_BLOCK_BYTES : size;
    }
    if (hasChecksum) offset += 4;
    need(0);
    total += contentBytes ?? frameBytes;
    if (contentBytes !== undefined && total > limitBytes) throw tooLarge(limitBytes);
  }
  return total;
}

type ZstdDecompressSync = (data: Uint8Array, options: { maxOutputLength: number }) => Buffer;

/** Decompresses a zstd body, never beyond `limitBytes`. */
export function zstdDecompress(bytes: Uint8Array, limitBytes: number): Uint8Array {
  checkZstdFrames(bytes, limitBytes);
  const native = (zlib as { zstdDecompressSync?: ZstdDecompressSync }).zstdDecompressSync;
  try {
    if (native !== undefined) return native(bytes, { maxOutputLength: limitBytes });
    return decompressPortably(bytes, limitBytes);
  } catch (error) {
    if (error instanceof HttpError) throw error;
    if (isTooLargeForZlib(error)) throw tooLarge(limitBytes);
    throw broken(error instanceof Error ? error.message : String(error));
  }
}

/** What can be read of the beginning of a body that is cut off; nothing when it is broken. */
export function zstdHead(bytes: Uint8Array): Uint8Array {
  const parts: Uint8Array[] = [];
  try {
    if (readFrameHeader(bytes, 0).windowBytes > EVERYDAY_WINDOW_BYTES) return new Uint8Array(0);
    const decoder = new Decompress((part) => {
      parts.push(part);
      // One block will do; a few bytes more can hold gigabytes.
      if (part.length > 0) throw new Error("enough");
    });
    decoder.push(bytes, false);
  } catch {
    // Whatever was read until then is the head.
  }
  return Buffer.concat(parts);
}

function decompressPortably(bytes: Uint8Array, limitBytes: number): Uint8Array {
  const parts: Uint8Array[] = [];
  let total = 0;
  const decoder = new Decompress((part) => {
    total += part.length;
    if (total > limitBytes) throw tooLarge(limitBytes);
    if (part.length > 0) parts.push(part);
  });
  // In steps, so that a bomb is noticed long before all of it has been decoded.
  const stepBytes = 64 * 1024;
  for (let offset = 0; offset < bytes.length; offset += stepBytes) {
    decoder.push(bytes.subarray(offset, offset + stepBytes), offset + stepBytes >= bytes.length);
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts, total);
}

/** Decompresses a gzip or deflate body, never beyond `limitBytes`. */
export function inflate(bytes: Uint8Array, encoding: "gzip" | "deflate", limitBytes: number): Uint8Array {
  try {
    const options = { maxOutputLength: limitBytes };
    return encoding === "gzip" ? zlib.gunzipSync(bytes, options) : zlib.inflateSync(bytes, options);
  } catch (error) {
    if (isTooLargeForZlib(error)) throw tooLarge(limitBytes);
    throw new HttpError(400, `The request body is not valid ${encoding}.`);
  }
}

function isTooLargeForZlib(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE";
}
