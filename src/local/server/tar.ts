import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";

const BLOCK_BYTES = 512;

/**
 * A tar archive (ustar) of some files of a folder, piece by piece. The files are opened before this returns, so
 * that one deleted during a long download is still read to its end.
 */
export async function openTar(
  folder: string,
  files: readonly string[],
  modifiedAt: number,
): Promise<AsyncGenerator<Uint8Array>> {
  const handles: FileHandle[] = [];
  try {
    for (const file of files) handles.push(await open(join(folder, file)));
  } catch (error) {
    for (const handle of handles) await handle.close();
    throw error;
  }
  return tarEntries(files, handles, modifiedAt);
}

async function* tarEntries(
  files: readonly string[],
  handles: readonly FileHandle[],
  modifiedAt: number,
): AsyncGenerator<Uint8Array> {
  try {
    for (const [index, file] of files.entries()) {
      const handle = handles[index]!;
      const { size } = await handle.stat();
      yield tarHeader(file, size, modifiedAt);
      let written = 0;
      for await (const chunk of handle.createReadStream({ autoClose: false })) {
        written += (chunk as Buffer).length;
        yield chunk as Buffer;
      }
      if (written !== size) throw new Error(`${file} changed while it was being archived.`);
      const rest = size % BLOCK_BYTES;
      if (rest > 0) yield new Uint8Array(BLOCK_BYTES - rest);
    }
    yield new Uint8Array(2 * BLOCK_BYTES);
  } finally {
    for (const handle of handles) await handle.close();
  }
}

function tarHeader(name: string, size: number, modifiedAt: number): Uint8Array {
  const header = Buffer.alloc(BLOCK_BYTES);
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
