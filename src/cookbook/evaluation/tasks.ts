import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import type { Message, ToolDeclaration } from "../../renderers/index.js";
import { describe, isRecord } from "../../wire/index.js";
import { conversationShape, readRow } from "../data/read-row.js";

/** A task as it is given: a `prompt` or `messages`, with the `answer` where there is one. */
export interface TaskLike {
  /** What the user asks. */
  readonly prompt?: string | undefined;
  /** A whole conversation, instead. */
  readonly messages?: readonly Message[] | undefined;
  /** What is right, for graders that compare. */
  readonly answer?: string | number | undefined;
  /** What the task is known by in the results. Default: made from its content. */
  readonly id?: string | undefined;
  /** What a grader of your own may need. */
  readonly [field: string]: unknown;
}

/** Something a model is asked, and what is right. */
export interface Task {
  readonly id: string;
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[] | undefined;
  readonly answer: string | undefined;
  /** The task as it was given, with all its fields. */
  readonly row: TaskLike;
}

/** Where tasks come from: a file (`.jsonl`, `.jsonl.gz`, `.parquet`) with one a line, or rows in code. */
export type TasksFrom = string | readonly TaskLike[];

/** Reads and checks all tasks. A wrong one is named by its place and field. */
export async function readTasks(
  from: TasksFrom,
  name: string,
  { needsAnswers = false, field = "tasks" } = {},
): Promise<readonly Task[]> {
  const { rows, place } = await givenRows(from, field);
  if (rows.length === 0) {
    throw new ValidationError(field, `There is no task${typeof from === "string" ? ` in ${from}` : ""}.`);
  }
  const read = rows.map((row, index) => readTask(row, place(index)));
  const ids = new Map<string, number>();
  const withIds: Task[] = [];
  for (const [index, { id, ...task }] of read.entries()) {
    if (needsAnswers && task.answer === undefined) {
      throw new ValidationError(
        "answer",
        `${place(index)}: answer is missing, which the grader compares with`,
      );
    }
    const known = id ?? `${name}_${await digest(JSON.stringify(task.messages))}`;
    const before = ids.get(known);
    if (id !== undefined && before !== undefined) {
      throw new ValidationError("id", `${place(index)}: id ${id} is that of ${place(before)} too`);
    }
    ids.set(known, index);
    // The same question twice is two tasks.
    withIds.push({ ...task, id: before === undefined ? known : unusedId(known, ids, index) });
  }
  return withIds;
}

function unusedId(id: string, ids: Map<string, number>, index: number): string {
  let number = 2;
  while (ids.has(`${id}_${number}`)) number += 1;
  ids.set(`${id}_${number}`, index);
  return `${id}_${number}`;
}

/** The messages with a system message before them, unless they have one. */
export function withSystem(messages: readonly Message[], system: string | undefined): readonly Message[] {
  return system === undefined || messages[0]?.role === "system"
    ? messages
    : [{ role: "system", content: system }, ...messages];
}

/** The first characters of a text's SHA-256: enough to tell tasks apart. */
export async function digest(text: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(hash).subarray(0, 6)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function givenRows(
  from: TasksFrom,
  field: string,
): Promise<{ readonly rows: readonly unknown[]; readonly place: (index: number) => string }> {
  if (typeof from !== "string") {
    if (!Array.isArray(from))
      throw new ValidationError(field, `${field} must be a file or a list, got ${describe(from)}`);
    return { rows: from, place: (index) => `${field}[${index}]` };
  }
  const { openFile } = await import("../data/files.node.js");
  await using lines = await openFile(from);
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const read = await lines.read([...new Array(lines.length).keys()]);
  const rows = read.map((line, index) => {
    try {
      return JSON.parse(decoder.decode(line).trim()) as unknown;
    } catch (error) {
      throw new TinkerError(`${lines.place(index)} is not JSON: ${messageOf(error)}`);
    }
  });
  return { rows, place: (index) => lines.place(index) };
}

function readTask(row: unknown, place: string): Omit<Task, "id"> & { readonly id: string | undefined } {
  const wrong = (field: string, why: string) => new ValidationError(field, `${place}: ${why}`);
  if (!isRecord(row)) throw wrong("", `a task must be an object, got ${describe(row)}`);
  const { prompt, messages, answer, id } = row as Record<string, unknown>;
  const asked = messages ?? (typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt);
  if (asked === undefined || asked === null) {
    throw wrong("prompt", `prompt or messages is missing, got ${Object.keys(row).join(", ") || "no field"}`);
  }
  const { row: conversation, problems } = readRow({ ...row, messages: asked }, conversationShape);
  if (problems !== undefined) throw wrong(problems[0]!.field, problems[0]!.message);
  if (conversation.messages.at(-1)!.role === "assistant") {
    throw wrong(
      "messages",
      "messages must end with what the model answers to, not with an assistant's message",
    );
  }
  const known = (field: string, value: unknown): string | undefined => {
    if (value === undefined || value === null) return undefined;
    if (typeof value === "string" || typeof value === "number") return String(value);
    throw wrong(field, `${field} must be text or a number, got ${describe(value)}`);
  };
  const { messages: read, tools } = conversation;
  return {
    id: known("id", id),
    answer: known("answer", answer),
    messages: read,
    tools,
    row: row as TaskLike,
  };
}
