import { type FileHandle, open } from "node:fs/promises";
import { cannotWrite } from "../../files.node.js";

const NEWLINE = 0x0a;
const SCAN_BYTES = 1 << 20;
/** A longer line is not written: reading it again would take too much memory. */
export const MAX_LINE_BYTES = 64 << 20;

/** Bytes that the files of a folder may have together. */
export interface FolderSpace {
  readonly maxBytes: number;
  /** Bytes that are written or about to be. */
  bytes: number;
}

/**
 * A file of JSON lines that only grows. The operating system has a line when `append` resolves, so that it survives the
 * end of this process; `sync` waits for the disk.
 */
export class LogFile {
  readonly #path: string;
  readonly #handle: FileHandle;
  readonly #space: FolderSpace;
  #waiting: Buffer[] = [];
  #next: Promise<void> | undefined;
  #writing: Promise<void> = Promise.resolve();
  /** End of the last complete line. */
  #end: number;

  private constructor(path: string, handle: FileHandle, end: number, space: FolderSpace) {
    this.#path = path;
    this.#handle = handle;
    this.#end = end;
    this.#space = space;
    space.bytes += end;
  }

  /** Opens or creates the file, and removes the incomplete line that a crash may have left at its end. */
  static async open(path: string, space: FolderSpace): Promise<LogFile> {
    const handle = await open(path, "a+", 0o600);
    try {
      const end = await endOfLines(handle);
      if (end < (await handle.stat()).size) await handle.truncate(end);
      return new LogFile(path, handle, end, space);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** Adds a line, unless it is too long or does not fit into the folder's space. */
  async append(value: object): Promise<"written" | "long" | "full"> {
    const line = Buffer.from(`${JSON.stringify(value)}\n`);
    if (line.length > MAX_LINE_BYTES) return "long";
    if (this.#space.bytes + line.length > this.#space.maxBytes) return "full";
    this.#space.bytes += line.length;
    this.#waiting.push(line);
    // Lines that arrive during a write go with the next one.
    this.#next ??= this.#writing.then(() => this.#write());
    await this.#next;
    return "written";
  }

  async sync(): Promise<void> {
    await this.#handle.datasync();
  }

  async close(): Promise<void> {
    await (this.#next ?? this.#writing);
    await this.#handle.close();
  }

  #write(): Promise<void> {
    const content = Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#next = undefined;
    const writing = this.#handle.appendFile(content).then(
      () => {
        this.#end += content.length;
      },
      async (error: unknown) => {
        this.#space.bytes -= content.length;
        // An incomplete line would spoil the next one too.
        await this.#handle.truncate(this.#end).catch(() => {});
        throw cannotWrite(this.#path, error);
      },
    );
    this.#writing = writing.catch(() => {});
    return writing;
  }
}

/** The place behind the last line that was written to its end. */
async function endOfLines(handle: FileHandle): Promise<number> {
  const { size } = await handle.stat();
  const buffer = Buffer.allocUnsafe(SCAN_BYTES);
  for (let end = size; end > 0; ) {
    const start = Math.max(0, end - SCAN_BYTES);
    const { bytesRead } = await handle.read(buffer, 0, end - start, start);
    const found = buffer.subarray(0, bytesRead).lastIndexOf(NEWLINE);
    if (found >= 0) return start + found + 1;
    end = start;
  }
  return 0;
}
