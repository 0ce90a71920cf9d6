import { Readable } from "node:stream";
import type { Context, Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { z } from "zod";
import { wrongValue } from "../../wire/fields/check-keys.js";
import type { RunNotes } from "../api.js";
import { MetricsFile } from "../runs/metrics-file.js";
import { fileOf, type ShownFolder } from "../runs/run-folders.js";
import { MAX_NOTE_LENGTH, MAX_TAG_LENGTH, MAX_TAGS } from "../runs/run-notes.js";
import type { DashboardParts } from "./app.js";
import { bodyOf } from "./body.js";

const DEFAULT_POINTS = 2000;
const MAX_POINTS = 20_000;
/** Runs whose metrics stay in memory although no page shows them; those that a page follows stay anyway. */
const MAX_IDLE_FILES = 16;
const IDLE_MS = 30_000;

/** The metrics of the runs that were looked at last. */
export class MetricsFiles {
  readonly #files = new Map<string, { readonly file: MetricsFile; readonly usedAt: number }>();

  async of(folder: ShownFolder): Promise<MetricsFile> {
    // The folder may have become a link since it was found.
    const path = (await fileOf(folder, "metrics.jsonl")) ?? "";
    const key = `${folder.id} ${path}`;
    const file = this.#files.get(key)?.file ?? new MetricsFile(folder.id, path);
    const usedAt = performance.now();
    this.#files.delete(key);
    this.#files.set(key, { file, usedAt });
    for (const [other, { usedAt: lastAt }] of this.#files)
      if (this.#files.size > MAX_IDLE_FILES && usedAt - lastAt > IDLE_MS) this.#files.delete(other);
    return file;
  }
}

const notesSchema: z.ZodType<RunNotes> = z.strictObject({
  tags: z.array(z.string().trim().min(1).max(MAX_TAG_LENGTH)).max(MAX_TAGS),
  note: z.string().max(MAX_NOTE_LENGTH),
});

/** Runs, their settings and their metrics. */
export function addRunFolderRoutes(app: Hono, parts: DashboardParts): void {
  const { summaries, metrics } = parts;
  app.get("/api/runs", async (context) => context.json(await summaries.list()));
  app.get("/api/runs/:run", async (context) =>
    context.json(await summaries.details(await runOf(context, parts))),
  );
  app.get("/api/runs/:run/metrics", async (context) => {
    const file = await metrics.of(await runOf(context, parts));
    const window = {
      points: Math.min(numberIn(context, "points") ?? DEFAULT_POINTS, MAX_POINTS),
      fromStep: numberIn(context, "from"),
      toStep: numberIn(context, "to"),
    };
    return context.json(await file.read(window));
  });
  app.get("/api/runs/:run/metrics.csv", async (context) => {
    const file = await metrics.of(await runOf(context, parts));
    const pieces = Readable.toWeb(Readable.from(await file.csv())) as ReadableStream<string>;
    return context.body(pieces.pipeThrough(new TextEncoderStream()), 200, {
      "content-type": "text/csv; charset=utf-8",
    });
  });
}

/** Tags and notes of runs, which people write. */
export function addNotesRoute(app: Hono, parts: DashboardParts): void {
  app.post("/api/runs/:run/notes", async (context) => {
    if (parts.isReadOnly)
      throw new HTTPException(403, { message: "This dashboard was started with --read-only." });
    const folder = await runOf(context, parts);
    const notes = await bodyOf(context, notesSchema);
    await parts.summaries.note(folder, notes);
    return context.json(notes);
  });
}

/** The run that a path names. */
export async function runOf(context: Context, { folders }: DashboardParts): Promise<ShownFolder> {
  const id = context.req.param("run") ?? "";
  const folder = await folders.find(id);
  if (folder === undefined)
    throw new HTTPException(404, { message: "The run does not exist, or no longer." });
  return folder;
}

/** A number of the query. */
export function numberIn(context: Context, name: string): number | undefined {
  const text = context.req.query(name);
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw wrongValue(name, "a number", text);
  return value;
}
