import { createReadStream } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream";
import { createGunzip } from "node:zlib";
import { errorCode, writeFully } from "../files.node.js";
import { throwIfAborted } from "../transport/index.js";
import { ArchiveError, safePath } from "./safe-path.js";
import { readTar, type TarEntry } from "./tar-reader.js";

/** Limits on what an archive unpacks to. */
export interface ExtractLimits {
  /** Most bytes the archive may unpack to. */
  maxUnpackedBytes: number;
  /** Most files and folders it may hold. Default 10,000. */
  maxEntries?: number;
  signal?: AbortSignal | undefined;
}

/** The unpacked files and their size. */
export interface Extracted {
  /** Paths below the folder, with `/`, in the order of the archive. */
  files: string[];
  bytes: number;
}

const CHUNK_BYTES = 1 << 18;
const DEFAULT_MAX_ENTRIES = 10_000;

/**
 * Unpacks a tar or tar.gz into a new folder, piece by piece, and syncs every file to disk. Refuses any entry that could
 * write outside the folder; the caller removes the folder if this throws.
 */
export async function extractArchive(
  archive: string,
  folder: string,
  limits: ExtractLimits,
): Promise<Extracted> {
  const { maxUnpackedBytes, maxEntries = DEFAULT_MAX_ENTRIES, signal } = limits;
  await mkdir(folder, { recursive: true });
  const extracted: Extracted = { files: [], bytes: 0 };
  let entries = 0;
  try {
    for await (const entry of readTar(
      bounded(unpackedBytes(archive, await isGzip(archive)), maxUnpackedBytes),
    )) {
      throwIfAborted(signal, "The unpacking");
      entries += 1;
      if (entries > maxEntries) {
        throw new ArchiveError("refused", `The archive holds more than ${maxEntries} files and folders.`);
      }
      await extractEntry(entry, folder, extracted, signal);
    }
  } catch (error) {
    throw asArchiveError(error);
  }
  return extracted;
}

async function extractEntry(
  entry: TarEntry,
  folder: string,
  extracted: Extracted,
  signal: AbortSignal | undefined,
): Promise<void> {
  const segments = safePath(entry.name);
  const parents = entry.kind === "folder" ? segments : segments.slice(0, -1);
  const target = join(folder, ...segments);
  let handle: FileHandle | undefined;
  try {
    await mkdir(join(folder, ...parents), { recursive: true });
    // `wx` neither follows nor replaces an existing file.
    if (entry.kind === "file" && segments.length > 0) handle = await open(target, "wx", 0o644);
  } catch (error) {
    const code = errorCode(error);
    if (code !== "EEXIST" && code !== "ENOTDIR" && code !== "EISDIR") throw error;
    throw new ArchiveError("refused", `The archive holds ${JSON.stringify(segments.join("/"))} twice.`, {
      cause: error,
    });
  }
  if (entry.kind === "folder") return;
  if (handle === undefined) {
    throw new ArchiveError(
      "refused",
      `The archive holds a file without a name: ${JSON.stringify(entry.name)}.`,
    );
  }
  try {
    let position = 0;
    for await (const piece of entry.body) {
      throwIfAborted(signal, "The unpacking");
      await writeFully(handle, piece, position);
      position += piece.length;
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  extracted.files.push(segments.join("/"));
  extracted.bytes += entry.size;
}

async function isGzip(archive: string): Promise<boolean> {
  const handle = await open(archive);
  try {
    const { bytesRead, buffer } = await handle.read(new Uint8Array(2), 0, 2, 0);
    return bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  } finally {
    await handle.close();
  }
}

async function* unpackedBytes(archive: string, gzip: boolean): AsyncGenerator<Uint8Array> {
  const source = createReadStream(archive, { highWaterMark: CHUNK_BYTES });
  // `pipeline`, so that an error of the reader also ends the writer.
  const stream = gzip ? pipeline(source, createGunzip({ chunkSize: CHUNK_BYTES }), () => undefined) : source;
  try {
    for await (const chunk of stream) yield chunk as Buffer;
  } finally {
    stream.destroy();
    source.destroy();
  }
}

async function* bounded(chunks: AsyncIterable<Uint8Array>, mostBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > mostBytes) {
      throw new ArchiveError(
        "refused",
        `The archive unpacks to more than ${mostBytes} bytes; raise maxUnpackedBytes if that is right.`,
      );
    }
    yield chunk;
  }
}

function asArchiveError(error: unknown): unknown {
  const code = errorCode(error);
  if (code === undefined || !/^(Z_|ERR_(TRAILING_JUNK|BUFFER_TOO_LARGE))/.test(code)) return error;
  const said = error instanceof Error ? error.message : String(error);
  return new ArchiveError("damaged", `The archive is damaged: ${said}.`, { cause: error });
}
