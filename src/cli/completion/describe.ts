import type { Command, Option } from "commander";

/** What may stand in a place: one of some words, a name in the file system, or anything. */
export type Expected = readonly string[] | "file" | "folder" | "anything";

/** An option, as a shell needs to know it. */
export interface DescribedOption {
  /** The long flag, `--verbose`. */
  readonly name: string;
  /** `-v`. */
  readonly short?: string;
  readonly summary: string;
  /** Absent for options without a value. */
  readonly value?: Expected;
}

/** A command, as a shell needs to know it. */
export interface DescribedCommand {
  /** The words after `tinkerts`, joined by a space: `""` for the program itself, or `"run list"`. */
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly summary: string }[];
  readonly options: readonly DescribedOption[];
  /** What its next word may be, where that is known: a command or an argument. */
  readonly words?: Exclude<Expected, "anything">;
}

/** A command line as a shell needs to know it, from the definitions that `--help` shows. */
export function describeProgram(program: Command): DescribedCommand[] {
  const describe = (command: Command, path: string): DescribedCommand[] => {
    const commands = command.commands.map((child) => ({ name: child.name(), summary: child.description() }));
    const words = expectedWords(command, program);
    return [
      {
        path,
        commands,
        options: command.createHelp().visibleOptions(command).map(describeOption),
        ...(words !== "anything" && { words }),
      },
      ...command.commands.flatMap((child) => describe(child, `${path} ${child.name()}`.trim())),
    ];
  };
  return describe(program, "");
}

function describeOption(option: Option): DescribedOption {
  const value = expected(option.argChoices, /[<[]([^>\].]*)/.exec(option.flags)?.[1]);
  return {
    name: option.long ?? option.flags,
    ...(option.short !== undefined && { short: option.short }),
    summary: option.description,
    ...((option.required || option.optional) && { value }),
  };
}

function expectedWords(command: Command, program: Command): Expected {
  // `help` is followed by what the program itself is followed by.
  const { commands } = command.parent === program && command.name() === "help" ? program : command;
  if (commands.length > 0) return commands.map((child) => child.name());
  const [argument] = command.registeredArguments;
  return expected(argument?.argChoices, argument?.name());
}

function expected(choices: readonly string[] | undefined, name: string | undefined): Expected {
  return choices ?? (name === "file" || name === "folder" ? name : "anything");
}

const flagsOf = ({ name, short }: DescribedOption) => (short === undefined ? [name] : [name, short]);

/** Every flag that takes a value in some command: the word after it is no command. */
export function flagsWithValue(commands: readonly DescribedCommand[]): string[] {
  const options = commands.flatMap((command) => command.options);
  return [...new Set(options.filter(({ value }) => value !== undefined).flatMap(flagsOf))];
}

/** Patterns for the path of a command, a space and a flag, with what may follow the flag there. */
export function flagValues(
  commands: readonly DescribedCommand[],
): { readonly patterns: readonly string[]; readonly value: Expected }[] {
  const byFlag = new Map<string, Map<string, { value: Expected; paths: string[] }>>();
  for (const { path, options } of commands) {
    for (const option of options) {
      const { value } = option;
      if (value === undefined) continue;
      for (const flag of flagsOf(option)) {
        const values = byFlag.get(flag) ?? new Map<string, { value: Expected; paths: string[] }>();
        byFlag.set(flag, values);
        const entry = values.get(String(value)) ?? { value, paths: [] };
        values.set(String(value), entry);
        entry.paths.push(path);
      }
    }
  }
  return [...byFlag].flatMap(([flag, values]) =>
    [...values.values()].map(({ value, paths }) => ({
      value,
      // A flag that means the same everywhere needs no path.
      patterns:
        values.size === 1 ? [`*${quoted(` ${flag}`)}`] : paths.map((path) => quoted(`${path} ${flag}`)),
    })),
  );
}

/** Each command as the words before it, a space and its name: what a shell compares as it goes along the line. */
export function subcommandPaths(commands: readonly DescribedCommand[]): string[] {
  return commands.flatMap(({ path, commands: children }) => children.map(({ name }) => `${path} ${name}`));
}

/** A word for any of the shells, whatever is in it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
