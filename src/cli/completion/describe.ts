import type { Command, Option } from "commander";
import { quoted } from "../../checkpoints/shell-word.js";

/** Values that an argument accepts: some words, a path, or anything. */
export type Expected = readonly string[] | "file" | "folder" | "anything";

/** An option, as shell completion describes it. */
export interface DescribedOption {
  /** The long flag, `--verbose`. */
  readonly name: string;
  /** `-v`. */
  readonly short?: string;
  readonly summary: string;
  /** Absent if the option takes no value. */
  readonly value?: Expected;
}

/** A command, as shell completion describes it. */
export interface DescribedCommand {
  /** The words after `tinkerts`, joined by spaces: `""` for the program itself, or `"run list"`. */
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly summary: string }[];
  readonly options: readonly DescribedOption[];
  /** Values of its next word, if known: commands or arguments. */
  readonly words?: Exclude<Expected, "anything">;
}

/** The whole command line for shell completion, from the definitions that `--help` shows. */
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
  // After `help`, the same words may follow as after the program itself.
  const { commands } = command.parent === program && command.name() === "help" ? program : command;
  if (commands.length > 0) return commands.map((child) => child.name());
  const [argument] = command.registeredArguments;
  return expected(argument?.argChoices, argument?.name());
}

function expected(choices: readonly string[] | undefined, name: string | undefined): Expected {
  return choices ?? (name === "file" || name === "folder" ? name : "anything");
}

const flagsOf = ({ name, short }: DescribedOption) => (short === undefined ? [name] : [name, short]);

/** Flags that take a value in some command: the word after one of them is not a command. */
export function flagsWithValue(commands: readonly DescribedCommand[]): string[] {
  const options = commands.flatMap((command) => command.options);
  return [...new Set(options.filter(({ value }) => value !== undefined).flatMap(flagsOf))];
}

/** Patterns of "command path, space, flag", with what may follow the flag. */
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

/** Each command as the words before it, a space and its name, to compare word by word. */
export function subcommandPaths(commands: readonly DescribedCommand[]): string[] {
  return commands.flatMap(({ path, commands: children }) => children.map(({ name }) => `${path} ${name}`));
}
