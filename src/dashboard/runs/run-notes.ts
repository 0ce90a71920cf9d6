import { join } from "node:path";
import { TinkerError } from "../../errors.js";
import { writeFileAtomic } from "../../files.node.js";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type { RunNotes } from "../api.js";
import { readEnd } from "./file-cache.js";
import { pathIn, type ShownFolder } from "./run-folders.js";

/** File of a run's folder with what people write about the run. */
export const NOTES_FILE = "notes.json";
export const MAX_TAGS = 20;
export const MAX_TAG_LENGTH = 60;
export const MAX_NOTE_LENGTH = 4000;
const MAX_BYTES = 64 << 10;

/** Tags and note of a run; none where the file is not readable. */
export async function readNotes(path: string): Promise<RunNotes> {
  const { tags, note } = parseJsonObject(await readEnd(path, MAX_BYTES)) ?? {};
  const texts = Array.isArray(tags) ? tags.filter((tag) => typeof tag === "string" && tag !== "") : [];
  return {
    tags: [...new Set(texts.map((tag: string) => tag.slice(0, MAX_TAG_LENGTH)))].slice(0, MAX_TAGS),
    note: typeof note === "string" ? note.slice(0, MAX_NOTE_LENGTH) : "",
  };
}

/** Replaces tags and note of a run. */
export async function writeNotes(folder: ShownFolder, { tags, note }: RunNotes): Promise<void> {
  // The folder may have become a link since it was found, and what it holds says whether it still is a run.
  const path = (await pathIn(folder, "metrics.jsonl")) ?? (await pathIn(folder, "checkpoints.jsonl"));
  if (path === undefined) throw new TinkerError(`${folder.name} is no longer the folder of a run`);
  await writeFileAtomic(join(path, "..", NOTES_FILE), `${JSON.stringify({ tags, note }, null, 2)}\n`);
}
