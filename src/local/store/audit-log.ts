import { appendFile, mkdir, readFile } from "node:fs/promises";
import { z } from "zod";
import { type DataFolder, listFolder, writePrivateAtomic } from "./data-folder.js";

const entrySchema = z.object({
  timestamp: z.string(),
  owner: z.string(),
  event: z.string(),
  modelId: z.string().nullable(),
  tinkerPath: z.string().nullable(),
  details: z.record(z.string(), z.unknown()),
});

/** One line of the audit log; the event's part before the '.' names the resource. */
export type AuditEntry = z.infer<typeof entrySchema>;

/** Events of checkpoints, projects and sessions, one file of JSON lines for each UTC day. */
export class AuditLogFile {
  readonly #folder: DataFolder;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(folder: DataFolder) {
    this.#folder = folder;
  }

  async load(): Promise<void> {
    await mkdir(this.#folder.join("audit"), { recursive: true, mode: 0o700 });
  }

  append(entry: AuditEntry): Promise<void> {
    const path = this.#pathOf(entry.timestamp.slice(0, 10));
    const written = this.#tail.then(() => appendFile(path, `${JSON.stringify(entry)}\n`, { mode: 0o600 }));
    // A full disk must not turn a finished save into a failed one; the next line tries again.
    this.#tail = written.catch(() => undefined);
    return this.#tail.then(() => undefined);
  }

  async read(day: string): Promise<AuditEntry[]> {
    await this.#tail;
    const text = await readFile(this.#pathOf(day), "utf8").catch(() => "");
    const entries: AuditEntry[] = [];
    for (const line of text.split("\n")) {
      const entry = parseLine(line);
      if (entry !== undefined) entries.push(entry);
    }
    return entries;
  }

  async renameOwner(from: string, to: string): Promise<void> {
    for (const name of await listFolder(this.#folder.join("audit"))) {
      const path = this.#folder.join("audit", name);
      const entries = await this.read(name.replace(/\.jsonl$/, ""));
      if (!entries.some(({ owner }) => owner === from)) continue;
      const renamed = entries.map((entry) => (entry.owner === from ? { ...entry, owner: to } : entry));
      await writePrivateAtomic(path, renamed.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
    }
  }

  async flush(): Promise<void> {
    await this.#tail;
  }

  #pathOf(day: string): string {
    return this.#folder.join("audit", `${day}.jsonl`);
  }
}

/** A crash may cut the last line short; such a line is left out. */
function parseLine(line: string): AuditEntry | undefined {
  if (line === "") return undefined;
  try {
    return entrySchema.parse(JSON.parse(line));
  } catch {
    return undefined;
  }
}
