import { type Command, Option } from "commander";
import { UsageError } from "./context.js";
import { duration } from "./option-values.js";

/** Values of --format. */
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
  /** False if colours were turned off on the command line; otherwise the terminal and the environment decide. */
  readonly color: boolean;
  /** How messages name the server, if not by the address in these options. */
  readonly serverName?: string | undefined;
  /** Flags of the command that were given as text, with that text. */
  readonly texts: ReadonlyMap<string, string>;
  /** Flags of the command that take a value, by the option that each of them sets. */
  readonly flags: ReadonlyMap<string, string>;
}

/** Heading of these options in every help text. */
export const GLOBAL_HEADING = "Global options:";

const OPTIONS: readonly Option[] = [
  new Option("-f, --format <format>", "output format").choices(FORMATS),
  new Option("--json", "the same as --format json"),
  new Option("--base-url <url>", "address of the server (default: TINKER_BASE_URL, else the hosted service)"),
  new Option("--api-key <key>", "API key (default: TINKER_API_KEY, else the key stored by auth login)"),
  new Option("--project <id>", "project of new sessions and of listed runs"),
  new Option("--timeout <time>", "time limit per request, in s, m or h (default: 60s)").argParser(duration),
  new Option("-v, --verbose", "log every request, and show where an error came from"),
  new Option("--no-color", "no colours; NO_COLOR in the environment does the same"),
].map((option) => option.helpGroup(GLOBAL_HEADING));

/** Adds the global options to a command, except those that it redefines. */
export function addGlobalOptions(command: Command): void {
  for (const option of OPTIONS) {
    const isTaken = command.options.some(({ long }) => long === option.long);
    if (!isTaken) command.addOption(option);
  }
}

/** Reads the global options from a command and its parents; the nearest one wins. */
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
    throw new UsageError(`--json and --format ${String(given["format"])} cannot be given together`);
  }
  return {
    format: given["json"] === true ? "json" : ((given["format"] as Format | undefined) ?? "table"),
    baseURL: given["baseUrl"] as string | undefined,
    apiKey: given["apiKey"] as string | undefined,
    project: given["project"] as string | undefined,
    timeoutMs: given["timeout"] as number | undefined,
    verbose: given["verbose"] === true,
    color: given["color"] !== false,
    texts: new Map(
      command.options.flatMap((option) => {
        const value: unknown = command.getOptionValue(option.attributeName());
        return option.long && typeof value === "string" ? [[option.long, value]] : [];
      }),
    ),
    flags: new Map(
      command.options.flatMap((option) =>
        option.long && option.required ? [[option.attributeName(), option.long]] : [],
      ),
    ),
  };
}
