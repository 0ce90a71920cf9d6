import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";

const TAR_BLOCK_BYTES = 512;
const STORED_BLOCK_BYTES = 65_535;
const GZIP_HEADER = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255);
const GZIP_TRAILER_BYTES = 8;

/** A tar.gz of some files. Its bytes are the same each time, and their number is known before the first is read. */
export interface Archive {
  readonly sizeBytes: number;
  /** The archive from its first byte; ending it early closes the files too. */
  bytes(): AsyncGenerator<Uint8Array>;
  close(): Promise<void>;
}

/**
 * The files are opened before this returns, so that one deleted during a long download is still read to its
 * end. Weights hardly shrink, so they are stored: that costs no time, and a size known in advance lets clients
 * show progress and go on where a download was cut off.
 */
export async function openArchive(
  folder: string,
  files: readonly string[],
  modifiedAt: number,
): Promise<Archive> {
  const opened: { name: string; size: number; handle: FileHandle }[] = [];
  const close = async () => {
    for (const { handle } of opened.splice(0)) await handle.close();
  };
  try {
    for (const name of files) {
      const handle = await open(join(folder, name));
      const entry = { name, size: 0, handle };
      opened.push(entry);
      entry.size = (await handle.stat()).size;
    }
  } catch (error) {
    await close();
    throw error;
  }
  let tarBytes = 2 * TAR_BLOCK_BYTES;
  for (const { size } of opened) tarBytes += TAR_BLOCK_BYTES + size + padding(size);
  return {
    sizeBytes:
      GZIP_HEADER.length + tarBytes + 5 * Math.ceil(tarBytes / STORED_BLOCK_BYTES) + GZIP_TRAILER_BYTES,
    bytes: () => storedGzip(tar(), tarBytes),
    close,
  };

  async function* tar(): AsyncGenerator<Uint8Array> {
    for (const { name, size, handle } of opened) {
      yield tarHeader(name, size, modifiedAt);
      let written = 0;
      for await (const chunk of handle.createReadStream({ autoClose: false, highWaterMark: 1 << 18 })) {
        written += (chunk as Buffer).length;
        yield chunk as Buffer;
      }
      if (written !== size) throw new Error(`${name} changed while it was being archived.`);
      yield new Uint8Array(padding(size));
    }
    yield new Uint8Array(2 * TAR_BLOCK_BYTES);
  }
}

function padding(size: number): number {
  return (TAR_BLOCK_BYTES - (size % TAR_BLOCK_BYTES)) % TAR_BLOCK_BYTES;
}

/** The gzip format around uncompressed content of a known size. */
async function* storedGzip(
  content: AsyncIterable<Uint8Array>,
  contentBytes: number,
): AsyncGenerator<Uint8Array> {
  yield GZIP_HEADER;
  let checksum = 0;
  let blockLeft = 0;
  let left = contentBytes;
  for await (const part of content) {
    checksum = crc32(part, checksum);
    for (let offset = 0; offset < part.length; ) {
      if (blockLeft === 0) {
        blockLeft = Math.min(left, STORED_BLOCK_BYTES);
        const header = Buffer.alloc(5);
        header[0] = blockLeft === left ? 1 : 0;
        header.writeUInt16LE(blockLeft, 1);
        header.writeUInt16LE(blockLeft ^ 0xffff, 3);
        yield header;
      }
      const piece = part.subarray(offset, offset + blockLeft);
      offset += piece.length;
      blockLeft -= piece.length;
      left -= piece.length;
      yield piece;
    }
  }
  const trailer = Buffer.alloc(GZIP_TRAILER_BYTES);
  trailer.writeUInt32LE(checksum, 0);
  trailer.writeUInt32LE(contentBytes % 2 ** 32, 4);
  yield trailer;
}

function tarHeader(name: string, size: number, modifiedAt: number): Uint8Array {
  const header = Buffer.alloc(TAR_BLOCK_BYTES);
  const octal = (value: number, offset: number, length: number) => {
    header.write(`${value.toString(8).padStart(length - 1, "0")}\0`, offset, "latin1");
  };
  if (Buffer.byteLength(name) > 100) throw new Error(`The file name ${name} is too long for an archive.`);
  header.write(name, 0, "utf8");
  octal(0o644, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  if (size < 8 ** 11) octal(size, 124, 12);
  else {
    // Sizes of 8 GiB and more are written in binary, marked by the first bit.
    header[124] = 0x80;
    header.writeBigUInt64BE(BigInt(size), 128);
  }
  octal(Math.floor(modifiedAt / 1000), 136, 12);
  header.fill(" ", 148, 156);
  header.write("0", 156, "latin1");
  header.write("ustar\x0000", 257, "latin1");
  let sum = 0;
  for (const byte of header) sum += byte;
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return header;
}
