import { mkdir } from "node:fs/promises";
import { z } from "zod";
import { type DataFolder, readJsonFile, recoverFolder, writePrivateAtomic } from "./data-folder.js";

const HOUR_MS = 3_600_000;

const usageSchema = z.object({
  hourStart: z.number(),
  owner: z.string(),
  sessionId: z.string().nullable(),
  baseModel: z.string(),
  kind: z.enum(["training", "prefill", "cached_prefill", "sample", "checkpoint"]),
  count: z.number(),
});

/** Tokens (or checkpoints) of one kind in one UTC hour. */
export type UsageEvent = z.infer<typeof usageSchema>;

/** How many tokens were really processed, by UTC hour, session, model and kind; one small file for each hour. */
export class UsageLog {
  readonly #folder: DataFolder;
  readonly #hours = new Map<number, Map<string, UsageEvent>>();
  readonly #unsaved = new Set<number>();

  constructor(folder: DataFolder) {
    this.#folder = folder;
  }

  async load(): Promise<void> {
    await mkdir(this.#folder.join("usage"), { recursive: true, mode: 0o700 });
    for (const entry of await recoverFolder(this.#folder.join("usage"))) {
      const parsed = z.array(usageSchema).safeParse(await readJsonFile(this.#folder.join("usage", entry)));
      if (!parsed.success) continue;
      for (const event of parsed.data) this.#hour(event.hourStart).set(keyOf(event), event);
    }
  }

  add(wallMs: number, event: Omit<UsageEvent, "hourStart">): void {
    if (event.count <= 0) return;
    const hourStart = Math.floor(wallMs / HOUR_MS) * HOUR_MS;
    const hour = this.#hour(hourStart);
    const key = keyOf(event);
    const existing = hour.get(key);
    if (existing === undefined) hour.set(key, { ...event, hourStart });
    else existing.count += event.count;
    this.#unsaved.add(hourStart);
  }

  between(startMs: number, endMs: number): UsageEvent[] {
    const hours = [...this.#hours.keys()]
      .filter((hour) => hour >= startMs && hour < endMs)
      .sort((a, b) => a - b);
    return hours.flatMap((hour) => [...this.#hour(hour).values()]);
  }

  renameOwner(from: string, to: string): void {
    for (const [hourStart, hour] of this.#hours) {
      for (const [key, event] of hour) {
        if (event.owner !== from) continue;
        hour.delete(key);
        this.add(hourStart, { ...event, owner: to });
      }
    }
  }

  async flush(): Promise<void> {
    for (const hourStart of [...this.#unsaved]) {
      const name = new Date(hourStart).toISOString().slice(0, 13);
      const events = JSON.stringify([...this.#hour(hourStart).values()]);
      // Before the write, during which more may come; what could not be written is tried again.
      this.#unsaved.delete(hourStart);
      await writePrivateAtomic(this.#folder.join("usage", `${name}.json`), events).catch((error: unknown) => {
        this.#unsaved.add(hourStart);
        throw error;
      });
    }
  }

  #hour(hourStart: number): Map<string, UsageEvent> {
    let hour = this.#hours.get(hourStart);
    if (hour === undefined) {
      hour = new Map();
      this.#hours.set(hourStart, hour);
    }
    return hour;
  }
}

function keyOf(event: Omit<UsageEvent, "hourStart" | "count">): string {
  return JSON.stringify([event.owner, event.sessionId, event.baseModel, event.kind]);
}
