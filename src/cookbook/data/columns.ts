import { TinkerError } from "../../errors.js";

/** Columns of a table that one of our formats has; only these are read, since others may be large. */
export const KNOWN_COLUMNS: readonly string[] = [
  ...["messages", "tools", "functions", "system", "system_prompt"],
  ...["conversations", "conversation"],
  ...["instruction", "input", "context", "output", "history"],
  ...["prompt", "question", "query", "completion", "answer", "response"],
  ...["chosen", "rejected", "comparison", "completion_a", "completion_b", "label"],
  "id",
];

/** Columns that do not say what a row is. */
const SECONDARY = new Set([
  "id",
  "label",
  "tools",
  "functions",
  "system",
  "system_prompt",
  "history",
  "context",
]);

/** Refuses a table with no column that a format is recognized by, or without one that the user named. */
export function checkColumns(name: string, found: readonly string[], wanted: readonly string[]): void {
  const has = `${name} has the columns ${found.filter(Boolean).slice(0, 20).join(", ") || "(none)"}`;
  const missing = wanted.find((column) => !found.includes(column));
  if (missing !== undefined) throw new TinkerError(`${has}, and not ${missing}.`);
  const isKnown = (column: string) => KNOWN_COLUMNS.includes(column) && !SECONDARY.has(column);
  if (wanted.length > 0 || found.some(isKnown)) return;
  throw new TinkerError(
    `${has}, none of which is known, such as messages, or prompt and completion: rename them, or say which are which ` +
      "(--columns prompt=NAME,completion=NAME).",
  );
}
