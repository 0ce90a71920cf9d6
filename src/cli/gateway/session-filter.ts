import { type Command, InvalidArgumentError } from "commander";
import { isWanted } from "../../gateway/recording/export-rows.js";
import type { RecordedSummary } from "../../gateway/recording/read-sessions.js";
import { gathered, pastTime } from "../option-values.js";

/** The flags that choose sessions of a recording. */
export interface FilterFlags {
  readonly minReward?: number;
  readonly maxReward?: number;
  readonly tag?: readonly string[];
  readonly since?: Date;
  readonly until?: Date;
}

/** Adds the flags that choose sessions of a recording. */
export function addFilterFlags(command: Command): Command {
  return command
    .option("--min-reward <number>", "only sessions with at least this reward", readNumber)
    .option("--max-reward <number>", "only sessions with at most this reward", readNumber)
    .option("--tag <tag>", "only sessions with this tag (repeatable; all must be there)", gathered(String))
    .option("--since <time>", "only sessions that began after this time, or at most this long ago", pastTime)
    .option("--until <time>", "only sessions that began before this time, or longer ago", pastTime);
}

/** Whether a session is one of those that the flags choose. */
export function filterOf({ tag, ...flags }: FilterFlags): (session: RecordedSummary) => boolean {
  return (session) => isWanted(session, { ...flags, tags: tag });
}

function readNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("It must be a number.");
  return value;
}
