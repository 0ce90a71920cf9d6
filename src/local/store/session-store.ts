import { mkdir, readFile } from "node:fs/promises";
import { z } from "zod";
import { type DataFolder, readJsonFile, recoverFolder, writePrivateAtomic } from "./data-folder.js";
import { Exclusive } from "./exclusive.js";

const samplerSchema = z.object({ id: z.string(), baseModel: z.string(), modelPath: z.string().nullable() });

const statusSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("active") }),
  z.object({ type: z.literal("expired"), at: z.number() }),
  z.object({
    type: z.literal("client_finished"),
    reason: z.enum(["success", "errored", "interrupted"]),
    detail: z.string().nullable(),
    at: z.number(),
  }),
]);

const sessionSchema = z.object({
  id: z.string().regex(/^[A-Za-z0-9-]{1,64}$/),
  owner: z.string(),
  projectId: z.string().nullable(),
  displayName: z.string().nullable(),
  tags: z.array(z.string()),
  userMetadata: z.record(z.string(), z.string()).nullable(),
  sdkVersion: z.string(),
  createdAt: z.number(),
  status: statusSchema,
  samplers: z.array(samplerSchema),
});

/** A sampler of a session as it is kept on disk. */
export type SamplerRecord = z.infer<typeof samplerSchema>;

/** One session as it is kept on disk; times are milliseconds since 1970. */
export type StoredSession = z.infer<typeof sessionSchema>;

/** All sessions of a data folder, in memory and on disk. */
export class SessionStore {
  readonly #folder: DataFolder;
  readonly #sessions = new Map<string, StoredSession>();
  readonly #samplers = new Map<string, { sampler: SamplerRecord; session: StoredSession }>();
  readonly #unsaved = new Set<StoredSession>();
  // If a session is written twice at once, the later write must win.
  readonly #exclusive = new Exclusive();

  constructor(folder: DataFolder) {
    this.#folder = folder;
  }

  async load(): Promise<void> {
    await mkdir(this.#folder.join("sessions"), { recursive: true, mode: 0o700 });
    await mkdir(this.#folder.join("traces"), { recursive: true, mode: 0o700 });
    await recoverFolder(this.#folder.join("traces"));
    for (const entry of await recoverFolder(this.#folder.join("sessions"))) {
      const parsed = sessionSchema.safeParse(await readJsonFile(this.#folder.join("sessions", entry)));
      if (!parsed.success || entry !== `${parsed.data.id}.json`) continue;
      this.#sessions.set(parsed.data.id, parsed.data);
      for (const sampler of parsed.data.samplers) {
        this.#samplers.set(sampler.id, { sampler, session: parsed.data });
      }
    }
  }

  get(id: string): StoredSession | undefined {
    return this.#sessions.get(id);
  }

  sampler(id: string): { sampler: SamplerRecord; session: StoredSession } | undefined {
    return this.#samplers.get(id);
  }

  /** Newest first. */
  list(): StoredSession[] {
    return [...this.#sessions.values()].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1));
  }

  async save(session: StoredSession): Promise<void> {
    this.#sessions.set(session.id, session);
    const path = this.#folder.join("sessions", `${session.id}.json`);
    await this.#exclusive.run(session.id, async () => {
      this.#unsaved.delete(session);
      await writePrivateAtomic(path, JSON.stringify(session, null, 2)).catch((error: unknown) => {
        this.#unsaved.add(session);
        throw error;
      });
    });
  }

  async renameOwner(from: string, to: string): Promise<void> {
    for (const session of this.#sessions.values())
      if (session.owner === from) await this.save(Object.assign(session, { owner: to }));
  }

  /** A sampler is written with the next `flush`: a training loop makes one at every step. */
  addSampler(session: StoredSession, sampler: SamplerRecord, maxKept: number): void {
    session.samplers.push(sampler);
    for (const { id } of session.samplers.splice(0, Math.max(0, session.samplers.length - maxKept)))
      this.#samplers.delete(id);
    this.#samplers.set(sampler.id, { sampler, session });
    this.#unsaved.add(session);
  }

  async flush(): Promise<void> {
    for (const session of [...this.#unsaved]) await this.save(session);
  }

  async saveTrace(sessionId: string, trace: string): Promise<void> {
    await writePrivateAtomic(this.#folder.join("traces", `${sessionId}.json`), trace);
  }

  async readTrace(sessionId: string): Promise<string | undefined> {
    return await readFile(this.#folder.join("traces", `${sessionId}.json`), "utf8").catch(() => undefined);
  }
}

/** The session id at the front of a model, sampler or request id. */
export function sessionIdOf(id: string): string {
  return id.split(":", 1)[0]!;
}
