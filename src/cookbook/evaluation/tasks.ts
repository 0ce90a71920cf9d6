import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import type { Message, ToolDeclaration } from "../../renderers/index.js";
import { describe, isRecord, wrongField } from "../../wire/index.js";
import { readRow } from "../data/read-row.js";
import { conversationShape } from "../data/row-formats.js";
import { readAll } from "../data/rows.js";

/** A task in code or in a file: a `prompt` or `messages`, and the `answer` if there is one. */
export interface TaskLike {
  /** Question that the user asks. */
  readonly prompt?: string | undefined;
  /** A whole conversation, instead of `prompt`. */
  readonly messages?: readonly Message[] | undefined;
  /** Correct answer, for graders that compare. */
  readonly answer?: string | number | undefined;
  /** Id of the task in the results. Default: made from its content. */
  readonly id?: string | undefined;
  /** Fields for a grader of your own. */
  readonly [field: string]: unknown;
}

/** A question for a model, and its right answer. */
export interface Task {
  readonly id: string;
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[] | undefined;
  readonly answer: string | undefined;
  /** The task as it was given, with all its fields. */
  readonly row: TaskLike;
}

/** Source of tasks: a file with a task per row, of any kind that `conversations` reads, or rows in code. */
export type TasksFrom = string | readonly TaskLike[];

/** Reads and checks all tasks. Errors name the position and the field. */
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
    // A question that occurs twice is two tasks.
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

/** The first characters of a text's SHA-256: enough to distinguish tasks. */
export async function digest(text: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(hash).subarray(0, 6)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function givenRows(
  from: TasksFrom,
  field: string,
): Promise<{ readonly rows: readonly unknown[]; readonly place: (index: number) => string }> {
  if (typeof from !== "string") {
    if (!Array.isArray(from)) throw wrongField(field, `must be a file or a list, got ${describe(from)}`);
    return { rows: from, place: (index) => `${field}[${index}]` };
  }
  const { openFiles } = await import("../data/named-files.node.js");
  await using lines = await openFiles([from]);
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const read = await readAll(lines);
  const rows = read.map((line, index) => {
    try {
      return JSON.parse(decoder.decode(line).trim()) as unknown;
    } catch (error) {
      throw new TinkerError(`${lines.place(index)} is not JSON: ${messageOf(error)}`);
    }
  });
  return { rows, place: (index) => lines.place(index) };
}

const TASK_SHAPE = conversationShape({ format: "messages" });

function readTask(row: unknown, place: string): Omit<Task, "id"> & { readonly id: string | undefined } {
  const wrong = (field: string, why: string) => new ValidationError(field, `${place}: ${why}`);
  if (!isRecord(row)) throw wrong("", `a task must be an object, got ${describe(row)}`);
  const { prompt, messages, answer, id } = row as Record<string, unknown>;
  const asked = messages ?? (typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt);
  if (asked === undefined || asked === null) {
    throw wrong("prompt", `prompt or messages is missing, got ${Object.keys(row).join(", ") || "no field"}`);
  }
  const { row: conversation, problems } = readRow({ ...row, messages: asked }, TASK_SHAPE);
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
