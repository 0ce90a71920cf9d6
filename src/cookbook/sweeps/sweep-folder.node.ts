import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { messageOf, TinkerError } from "../../errors.js";
import { errorCode, FolderLock, writeFileAtomic } from "../../files.node.js";
import { SWEEP_RECORD, type SweepRecord } from "./sweep-record.js";

const FILE = "sweep.json";
const MAX_FILE_BYTES = 64 << 20;

/** The folder of a sweep, which belongs to one process at a time. */
export class SweepFolder {
  readonly path: string;
  readonly #lock: FolderLock;
  #written: Promise<unknown> = Promise.resolve();

  private constructor(path: string, lock: FolderLock) {
    this.path = path;
    this.#lock = lock;
  }

  static async open(folder: string): Promise<SweepFolder> {
    const path = resolve(folder);
    await mkdir(path, { recursive: true });
    return new SweepFolder(path, await FolderLock.take(path, "folder of a sweep"));
  }

  /** The name of the folder. */
  get name(): string {
    return this.path.split(/[\\/]/).at(-1) || "sweep";
  }

  /** Where a run of the sweep is. */
  runPath(folder: string): string {
    return join(this.path, folder);
  }

  /** The sweep as an earlier call left it. */
  async read(): Promise<SweepRecord | undefined> {
    const file = join(this.path, FILE);
    try {
      const text = await readFile(file, "utf8");
      if (text.length > MAX_FILE_BYTES)
        throw new TinkerError(`it has more than ${MAX_FILE_BYTES} characters`);
      return SWEEP_RECORD.check(JSON.parse(text), "");
    } catch (error) {
      if (errorCode(error) === "ENOENT") return undefined;
      const advice = "correct it, or give another folder for a new sweep";
      throw new TinkerError(`${file} cannot be read: ${messageOf(error)}; ${advice}.`, { cause: error });
    }
  }

  /** Replaces `sweep.json`; the latest call is the last one that is written. */
  write(record: SweepRecord): Promise<void> {
    const write = () => writeFileAtomic(join(this.path, FILE), `${JSON.stringify(record, null, 2)}\n`);
    const written = this.#written.then(write);
    this.#written = written.catch(() => {});
    return written;
  }

  async close(): Promise<void> {
    await this.#written;
    await this.#lock.release();
  }
}
