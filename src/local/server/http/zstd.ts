import { promisify } from "node:util";
import * as zlib from "node:zlib";
import { Decompress } from "fzstd";
import { HttpError } from "./http-error.js";

const FRAME_MAGIC = 0xfd2fb528;
const LARGEST_BLOCK_BYTES = 128 * 1024;
const BLOCKS_AT_A_TIME = 16;
/** Window size that every zstd decoder must support. */
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
 * Walks the frames without decompressing: a header alone can ask for gigabytes of window, and four bytes for
 * 128 KiB of one letter, which has to be refused before any decoder reads it. Returns where to cut the bytes so
 * that no piece decompresses to more than a few blocks.
 */
export function checkZstdFrames(bytes: Uint8Array, limitBytes: number): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const cuts: number[] = [];
  let offset = 0;
  let blocks = 0;
  // Certain already: content sizes that are stated, and blocks that are not compressed.
  let certainBytes = 0;
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
    // Compressors round the window up to a power of two.
    if (windowBytes > Math.max(2 * limitBytes, EVERYDAY_WINDOW_BYTES)) throw tooLarge(limitBytes);
    certainBytes += contentBytes ?? 0;
    if (certainBytes > limitBytes) throw tooLarge(limitBytes);
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
      if (contentBytes === undefined && type !== 2) certainBytes += size;
      if (certainBytes > limitBytes) throw tooLarge(limitBytes);
      blocks += 1;
      if (blocks % BLOCKS_AT_A_TIME === 0) cuts.push(offset);
    }
    if (hasChecksum) offset += 4;
    need(0);
  }
  cuts.push(bytes.length);
  return cuts;
}

type AsyncDecompress = (data: Uint8Array, options: { maxOutputLength: number }) => Promise<Buffer>;

/** Decompresses a zstd body, never beyond `limitBytes`, while others are served. */
export async function zstdDecompress(bytes: Uint8Array, limitBytes: number): Promise<Uint8Array> {
  const cuts = checkZstdFrames(bytes, limitBytes);
  const native = (zlib as { zstdDecompress?: typeof zlib.gunzip }).zstdDecompress;
  try {
    if (native !== undefined) {
      const decompress = promisify(native) as AsyncDecompress;
      return await decompress(bytes, { maxOutputLength: limitBytes });
    }
    return await decompressPortably(bytes, cuts, limitBytes);
  } catch (error) {
    if (error instanceof HttpError) throw error;
    if (isTooLargeForZlib(error)) throw tooLarge(limitBytes);
    throw broken(error instanceof Error ? error.message : String(error));
  }
}

/** The decompressed beginning of a truncated body; empty if it is damaged. */
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

async function decompressPortably(
  bytes: Uint8Array,
  cuts: readonly number[],
  limitBytes: number,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let total = 0;
  const decoder = new Decompress((part) => {
    total += part.length;
    if (total > limitBytes) throw tooLarge(limitBytes);
    if (part.length > 0) parts.push(part);
  });
  let offset = 0;
  for (const cut of cuts) {
    decoder.push(bytes.subarray(offset, cut), cut === bytes.length);
    offset = cut;
    if (cut < bytes.length) await new Promise((resolve) => setImmediate(resolve));
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts, total);
}

/** Decompresses a gzip or deflate body, never beyond `limitBytes`, while others are served. */
export async function inflate(
  bytes: Uint8Array,
  encoding: "gzip" | "deflate",
  limitBytes: number,
): Promise<Uint8Array> {
  const decompress = promisify(encoding === "gzip" ? zlib.gunzip : zlib.inflate) as AsyncDecompress;
  try {
    return await decompress(bytes, { maxOutputLength: limitBytes });
  } catch (error) {
    if (isTooLargeForZlib(error)) throw tooLarge(limitBytes);
    throw new HttpError(400, `The request body is not valid ${encoding}.`);
  }
}

function isTooLargeForZlib(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE";
}
