import { ByteReader } from "./byte-reader.js";
import { ArchiveError } from "./safe-path.js";

/** One file or folder of an archive, from its header. */
export interface TarEntry {
  /** Path as it is in the archive: not yet checked. */
  readonly name: string;
  readonly kind: "file" | "folder";
  readonly size: number;
  /** The file's bytes; read them before the next entry. What is not read is skipped. */
  readonly body: AsyncIterable<Uint8Array>;
}

const BLOCK_BYTES = 512;
const LONGEST_EXTENSION_BYTES = 1 << 20;
const MAX_EXTENSIONS_IN_A_ROW = 8;

/** Kinds of entries that are neither files nor folders. */
const REFUSED_KINDS: Readonly<Record<string, string>> = {
  "1": "a hard link",
  "2": "a symbolic link",
  "3": "a character device",
  "4": "a block device",
  "6": "a named pipe",
  S: "a sparse file",
  M: "a piece of a file of another archive",
  V: "a volume label",
};

/** Reads a tar archive (ustar, pax, GNU) piece by piece; memory does not grow with its size. */
export async function* readTar(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const reader = new ByteReader(chunks);
  try {
    let globalRecords: Record<string, string> = {};
    let records: Record<string, string> = {};
    let extensions = 0;
    for (;;) {
      const header = await reader.read(BLOCK_BYTES);
      if (header === undefined) {
        throw new ArchiveError(
          "damaged",
          "The archive ends before its end mark, so a part of it is missing.",
        );
      }
      if (header.every((byte) => byte === 0)) break;
      checkSum(header);
      const kind = header[156] === 0 ? "0" : String.fromCharCode(header[156]!);
      if (kind === "x" || kind === "g" || kind === "L" || kind === "K") {
        extensions += 1;
        if (extensions > MAX_EXTENSIONS_IN_A_ROW) {
          throw new ArchiveError("refused", "The archive holds extension headers that belong to no file.");
        }
        const content = await readExtension(reader, numberAt(header, 124, 12));
        if (kind === "x") records = { ...records, ...paxRecords(content) };
        else if (kind === "g") globalRecords = { ...globalRecords, ...paxRecords(content) };
        else if (kind === "L") records = { ...records, path: textAt(content, 0, content.length) };
        continue;
      }
      const all = { ...globalRecords, ...records };
      records = {};
      extensions = 0;
      const entry = describeEntry(header, kind, all);
      const padding = (BLOCK_BYTES - (entry.size % BLOCK_BYTES)) % BLOCK_BYTES;
      const body = reader.pieces(entry.size);
      yield { ...entry, body };
      for await (const _ of body);
      for await (const _ of reader.pieces(padding));
    }
    // To the end, so that the decompressor below sees, and checks, its checksum.
    await reader.drain();
  } finally {
    await reader.close();
  }
}

function describeEntry(
  header: Uint8Array,
  kind: string,
  records: Record<string, string>,
): Omit<TarEntry, "body"> {
  const prefix = textAt(header, 257, 5) === "ustar" && header[263] === 0x30 ? textAt(header, 345, 155) : "";
  const short = textAt(header, 0, 100);
  const name = records["path"] ?? (prefix === "" ? short : `${prefix}/${short}`);
  const refused =
    REFUSED_KINDS[kind] ??
    (Object.keys(records).some((key) => key.startsWith("GNU.sparse")) ? "a sparse file" : undefined);
  if (refused !== undefined) {
    throw new ArchiveError(
      "refused",
      `The archive holds ${JSON.stringify(name)}, ${refused}; only files and folders are unpacked.`,
    );
  }
  if (kind !== "0" && kind !== "5" && kind !== "7") {
    throw new ArchiveError(
      "refused",
      `The archive holds ${JSON.stringify(name)} of the unknown kind ${JSON.stringify(kind)}.`,
    );
  }
  const isFolder = kind === "5" || (kind === "0" && name.endsWith("/"));
  const size =
    records["size"] === undefined ? numberAt(header, 124, 12) : wholeNumber(records["size"], "size");
  return { name, kind: isFolder ? "folder" : "file", size: isFolder ? 0 : size };
}

async function readExtension(reader: ByteReader, size: number): Promise<Uint8Array> {
  if (size > LONGEST_EXTENSION_BYTES) {
    throw new ArchiveError("refused", `The archive holds an extension header of ${size} bytes.`);
  }
  const padded = Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;
  const content = padded === 0 ? new Uint8Array(0) : await reader.read(padded);
  if (content === undefined) {
    throw new ArchiveError("damaged", "The archive ends in the middle of an extension header.");
  }
  return content.subarray(0, size);
}

/** Records of the form `<length> <key>=<value>\n`, where the length counts the whole record. */
function paxRecords(content: Uint8Array): Record<string, string> {
  const records: Record<string, string> = Object.create(null) as Record<string, string>;
  const decoder = new TextDecoder();
  for (let at = 0; at < content.length; ) {
    const space = content.indexOf(0x20, at);
    const length = wholeNumber(decoder.decode(content.subarray(at, Math.max(space, at))), "pax record");
    const record = decoder.decode(content.subarray(space + 1, at + length - 1));
    const equals = record.indexOf("=");
    if (length === 0 || at + length > content.length || equals < 1) {
      throw new ArchiveError("damaged", "The archive holds a pax header that cannot be read.");
    }
    records[record.slice(0, equals)] = record.slice(equals + 1);
    at += length;
  }
  return records;
}

function checkSum(header: Uint8Array): void {
  let sum = 0;
  // The checksum's own field counts as spaces.
  for (let i = 0; i < BLOCK_BYTES; i++) sum += i >= 148 && i < 156 ? 0x20 : header[i]!;
  if (sum !== numberAt(header, 148, 8)) {
    throw new ArchiveError(
      "damaged",
      "The archive has a header with a wrong checksum: it is damaged, or not a tar file.",
    );
  }
}

function textAt(bytes: Uint8Array, start: number, length: number): string {
  const field = bytes.subarray(start, start + length);
  const end = field.indexOf(0);
  return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end));
}

/** Octal digits, or base 256 when the first bit is set. */
function numberAt(header: Uint8Array, start: number, length: number): number {
  if (header[start]! & 0x80) {
    let value = header[start]! & 0x7f;
    for (let i = start + 1; i < start + length; i++) value = value * 256 + header[i]!;
    return wholeNumber(String(value), "size");
  }
  const text = textAt(header, start, length).trim();
  if (!/^[0-7]*$/.test(text))
    throw new ArchiveError("damaged", "The archive holds a number that cannot be read.");
  return text === "" ? 0 : Number.parseInt(text, 8);
}

function wholeNumber(text: string, what: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) {
    throw new ArchiveError(
      "damaged",
      `The archive holds a ${what} that is not a number: ${JSON.stringify(text.slice(0, 40))}.`,
    );
  }
  return value;
}
