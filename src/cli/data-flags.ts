import { type Command, InvalidArgumentError, Option } from "commander";
import { CONVERSATIONS_OPTIONS, type ConversationsOptions } from "../cookbook/data/conversations.js";
import { messageOf } from "../errors.js";
import { helpOf } from "./option-flags.js";

/** Files of conversations, for the help of a command. */
export const FILES_HELP =
  ".jsonl, .json, .csv, .tsv or .parquet, also .gz, hf:OWNER/NAME[@REVISION][/CONFIG][:SPLIT], with * and =WEIGHT";

/** Flags about rows whose format or columns are not recognized. */
export interface DataFlags {
  readonly dataFormat?: NonNullable<ConversationsOptions["format"]>;
  readonly columns?: Readonly<Record<string, string>>;
}

const { format, columns } = CONVERSATIONS_OPTIONS.fields;

/** Adds the flags that say how rows are read. `--format` is that of the output, as in every command. */
export function addDataFlags(command: Command): Command {
  return command
    .addOption(new Option("--data-format <name>", helpOf(format)).choices([...format.choices!]))
    .addOption(new Option("--columns <names>", helpOf(columns)).argParser(readColumns));
}

/** How rows are read, by these flags. */
export function rowNames({ dataFormat, columns: named }: DataFlags): ConversationsOptions {
  return { ...(dataFormat && { format: dataFormat }), ...(named && { columns: named }) };
}

function readColumns(text: string): Readonly<Record<string, string>> {
  const pairs = text.split(",").map((pair) => pair.split("=").map((part) => part.trim()));
  if (pairs.some(([field, column, more]) => !field || !column || more !== undefined))
    throw new InvalidArgumentError("It must be a list such as prompt=question,completion=reply.");
  try {
    return columns.check(Object.fromEntries(pairs), "columns")!;
  } catch (error) {
    throw new InvalidArgumentError(`${messageOf(error)}.`);
  }
}
