import { Command } from "commander";
import { SDK_VERSION } from "../version.js";
import { COMMANDS, type CommandEntry, type CommandGroup } from "./commands/index.js";
import type { CommandContext } from "./context.js";
import { addGlobalOptions } from "./global-options.js";
import { addHelpEnd, HELP_LAYOUT } from "./help.js";

/** The command line without the options of its commands: each command file adds them when it is used. */
export function createProgram(context: CommandContext): Command {
  let used: Command;
  const program = new Command("tinkerts")
    .description("The Tinker API from the command line, with a training server of its own.")
    .version(`tinkerts ${SDK_VERSION}`, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .helpCommand(false)
    .enablePositionalOptions()
    .configureHelp(HELP_LAYOUT)
    .configureOutput({
      outputError: (text) => {
        const hint = text.includes("Did you mean") ? "" : ` (see ${fullName(used)} --help)`;
        // --format is that of the output, everywhere.
        const hasRows = used.options.some(({ long }) => long === "--data-format");
        const isFormat = hasRows && text.includes("--format <format>");
        context.notify(`${text.trimEnd()}${isFormat ? " The format of rows is --data-format." : ""}${hint}`);
      },
    })
    .exitOverride();
  used = program;
  addGlobalOptions(program);
  const add = (parent: Command, entry: CommandEntry | CommandGroup) => {
    const command = parent.command(entry.name).description(entry.summary);
    if (!("load" in entry)) addGlobalOptions(command);
    if (entry.commands !== undefined) {
      command.helpCommand(false);
      for (const child of entry.commands) add(command, child);
    }
    parent.hook("preSubcommand", async (_, next) => {
      if (next !== command) return;
      used = command;
      if ("load" in entry) await loadCommand(command, entry, context);
    });
  };
  for (const entry of COMMANDS) add(program, entry);
  addHelpCommand(program);
  return program;
}

/** The whole command line, for documentation and completion. */
export async function createCompleteProgram(context: CommandContext): Promise<Command> {
  const program = createProgram(context);
  const complete = async (parent: Command, entries: readonly (CommandEntry | CommandGroup)[]) => {
    for (const entry of entries) {
      const command = parent.commands.find((child) => child.name() === entry.name)!;
      if ("load" in entry) await loadCommand(command, entry, context);
      await complete(command, entry.commands ?? []);
    }
  };
  await complete(program, COMMANDS);
  return program;
}

async function loadCommand(command: Command, entry: CommandEntry, context: CommandContext): Promise<void> {
  (await entry.load()).define(command, context);
  addGlobalOptions(command);
  addHelpEnd(command, entry);
}

/** `help run list` means `run list --help`; the command is loaded before its help is shown. */
function addHelpCommand(program: Command): void {
  program
    .command("help")
    .description("show help for a command")
    .argument("[command...]", "the command")
    .action(async (names: readonly string[]) => {
      let command = program;
      for (const [index, name] of names.entries()) {
        if (command.commands.length === 0) break;
        const next = command.commands.find((child) => child.name() === name);
        if (next === undefined) {
          await program.parseAsync(names.slice(0, index + 1), { from: "user" });
          return;
        }
        command = next;
      }
      await program.parseAsync([...names, "--help"], { from: "user" });
    });
}

/** All words of a command: `tinkerts run list`. */
export function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}
