import { type Command, Option } from "commander";
import { UsageError } from "./context.js";
import { duration } from "./option-values.js";

/** What --format takes. */
export const FORMATS = ["table", "json", "csv"] as const;
export type Format = (typeof FORMATS)[number];

/** The options every command has. */
export interface GlobalOptions {
  readonly format: Format;
  readonly baseURL: string | undefined;
  readonly apiKey: string | undefined;
  readonly project: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly verbose: boolean;
  /** False when colours were declined on the command line; a terminal and the environment decide too. */
  readonly color: boolean;
}

/** The heading of these options in every help. */
export const GLOBAL_HEADING = "Global options:";

const OPTIONS: readonly Option[] = [
  new Option("-f, --format <format>", "print results as").choices(FORMATS),
  new Option("--json", "the same as --format json"),
  new Option("--base-url <url>", "the server (default: TINKER_BASE_URL, else hosted)"),
  new Option(
    "--api-key <key>",
    "the key for it (default: TINKER_API_KEY, else the one stored by auth login)",
  ),
  new Option("--project <id>", "the project of new sessions and of listed runs"),
  new Option("--timeout <time>", "longest wait for an answer, in s, m or h (default: 60s)").argParser(
    duration,
  ),
  new Option("-v, --verbose", "log every request, and show where an error came from"),
  new Option("--no-color", "no colours; NO_COLOR in the environment does the same"),
].map((option) => option.helpGroup(GLOBAL_HEADING));

/** Adds them to a command, but those it has in a sense of its own. */
export function addGlobalOptions(command: Command): void {
  for (const option of OPTIONS) {
    const isTaken = command.options.some(({ long }) => long === option.long);
    if (!isTaken) command.addOption(option);
  }
}

/** Reads them from a command and those above it; the nearest to the command wins. */
export function readGlobalOptions(command: Command): GlobalOptions {
  const given: Record<string, unknown> = {};
  for (let current: Command | null = command; current !== null; current = current.parent) {
    for (const option of OPTIONS) {
      const name = option.attributeName();
      if (!current.options.includes(option) || current.getOptionValueSource(name) !== "cli") continue;
      given[name] ??= current.getOptionValue(name);
    }
  }
  if (given["json"] === true && given["format"] !== undefined && given["format"] !== "json") {
    throw new UsageError(`--json and --format ${String(given["format"])} exclude each other`);
  }
  return {
    format: given["json"] === true ? "json" : ((given["format"] as Format | undefined) ?? "table"),
    baseURL: given["baseUrl"] as string | undefined,
    apiKey: given["apiKey"] as string | undefined,
    project: given["project"] as string | undefined,
    timeoutMs: given["timeout"] as number | undefined,
    verbose: given["verbose"] === true,
    color: given["color"] !== false,
  };
}
