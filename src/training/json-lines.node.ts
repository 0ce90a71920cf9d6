import { type FileHandle, open } from "node:fs/promises";
import { TinkerError } from "../errors.js";

const NEWLINE = 0x0a;
/** Python writes these although JSON has no such numbers. Looking back over spaces would take their number squared. */
const PYTHON_NUMBER = /([:,[]\s*)(?:NaN|-?Infinity)(?=\s*[,}\]])/g;

type Line = Readonly<Record<string, unknown>>;

/** A file of one JSON object a line that is only ever added to, and that a crash cannot leave unreadable. */
export class JsonLines {
  /** The lines of the file when it was opened. */
  readonly initial: readonly Line[];
  readonly #path: string;
  readonly #handle: FileHandle;
  /** Up to here the file is whole. */
  #bytes: number;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(path: string, handle: FileHandle, bytes: number, initial: readonly Line[]) {
    this.#path = path;
    this.#handle = handle;
    this.#bytes = bytes;
    this.initial = initial;
  }

  /** Opens or makes the file; what a crash left of an unfinished line is cut off. */
  static async open(path: string): Promise<JsonLines> {
    const handle = await open(path, "a+");
    try {
      const content = await handle.readFile();
      const { lines, bytes, lacksNewline } = parse(content, path);
      if (bytes < content.length) await handle.truncate(bytes);
      if (lacksNewline) await handle.appendFile("\n");
      await handle.sync();
      return new JsonLines(path, handle, bytes + (lacksNewline ? 1 : 0), lines);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** Adds a line; resolves once it is on disk. */
  append(line: Line): Promise<void> {
    const content = Buffer.from(`${JSON.stringify(line)}\n`);
    const writing = this.#last.then(async () => {
      try {
        await this.#handle.appendFile(content);
        await this.#handle.sync();
        this.#bytes += content.length;
      } catch (error) {
        // Half a line would spoil the next one too.
        await this.#handle.truncate(this.#bytes).catch(() => {});
        throw error;
      }
    });
    this.#last = writing.catch(() => {});
    return writing;
  }

  async read(): Promise<readonly Line[]> {
    await this.#last;
    const content = Buffer.alloc(this.#bytes);
    await this.#handle.read(content, 0, content.length, 0);
    return parse(content, this.#path).lines;
  }

  async close(): Promise<void> {
    await this.#last;
    await this.#handle.close();
  }
}

/** The lines up to the last whole one. A bad line before good ones was not caused by a crash, and is an error. */
function parse(content: Buffer, path: string): { lines: Line[]; bytes: number; lacksNewline: boolean } {
  const lines: Line[] = [];
  let bytes = 0;
  let badLine: number | undefined;
  let lacksNewline = false;
  for (let start = 0, number = 1; start < content.length; number += 1) {
    const newline = content.indexOf(NEWLINE, start);
    const end = newline < 0 ? content.length : newline;
    const line = parseJsonObject(content.toString("utf8", start, end));
    start = end + 1;
    if (line === undefined) {
      badLine ??= number;
      continue;
    }
    if (badLine !== undefined) throw new TinkerError(`Line ${badLine} of ${path} is not a JSON object.`);
    lines.push(line);
    lacksNewline = newline < 0;
    bytes = lacksNewline ? end : start;
  }
  return { lines, bytes, lacksNewline };
}

/** Also as Python writes it; undefined if it is not a JSON object. */
export function parseJsonObject(text: string): Line | undefined {
  const value = parseJson(text) ?? parseJson(text.replaceAll(PYTHON_NUMBER, "$1null"));
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Line) : undefined;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
