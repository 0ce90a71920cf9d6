import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import type { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { z } from "zod";
import { errorCode } from "../../files.node.js";
import type { PlaygroundRow, SavedRow } from "../api.js";
import type { DashboardParts } from "./app.js";
import { bodyOf } from "./body.js";
import { playgroundMessages } from "./chat-route.js";

/** File in the first of the dashboard's folders that keeps exchanges of the playground as training data. */
export const ROWS_FILE = "playground.jsonl";
const MAX_FILE_BYTES = 64 << 20;
const READ_BYTES = 1 << 20;
const NEWLINE = 0x0a;

const rowSchema: z.ZodType<PlaygroundRow> = z.strictObject({ messages: playgroundMessages });

/** Keeps an exchange of the playground as a row for `tinkerts train sft`. */
export function addRowRoute(app: Hono, { folders, isReadOnly }: DashboardParts): void {
  let last: Promise<unknown> = Promise.resolve();
  app.post("/api/rows", async (context) => {
    if (isReadOnly) throw new HTTPException(403, { message: "This dashboard was started with --read-only." });
    const { messages } = await bodyOf(context, rowSchema);
    if (messages.at(-1)?.role !== "assistant")
      throw new HTTPException(400, { message: "messages must end with an answer of the assistant" });
    const path = join(folders.roots[0]!, ROWS_FILE);
    const saving = last.then(() => appendRow(path, `${JSON.stringify({ messages })}\n`));
    last = saving.catch(() => {});
    return context.json({ path, rows: await saving } satisfies SavedRow);
  });
}

/** Number of rows in the file with this one. */
async function appendRow(path: string, line: string): Promise<number> {
  const flags = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0);
  const file = await open(path, flags, 0o600).catch((error: unknown) => {
    if (errorCode(error) === "ELOOP") throw new HTTPException(409, { message: `${path} is a link.` });
    throw error;
  });
  try {
    const found = await file.stat();
    if (!found.isFile()) throw new HTTPException(409, { message: `${path} is not a file.` });
    if (found.size + line.length > MAX_FILE_BYTES)
      throw new HTTPException(413, { message: `${path} is full: rename it to begin another one.` });
    const last = Buffer.alloc(1);
    if (found.size > 0) await file.read(last, 0, 1, found.size - 1);
    const isWhole = found.size === 0 || last[0] === NEWLINE;
    await file.appendFile(isWhole ? line : `\n${line}`);
    return await countLines(file);
  } finally {
    await file.close();
  }
}

async function countLines(file: Awaited<ReturnType<typeof open>>): Promise<number> {
  const buffer = Buffer.alloc(READ_BYTES);
  let lines = 0;
  for (let position = 0; ; ) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return lines;
    const read = buffer.subarray(0, bytesRead);
    for (let at = read.indexOf(NEWLINE); at !== -1; at = read.indexOf(NEWLINE, at + 1)) lines += 1;
    position += bytesRead;
  }
}
