import { Command, Help } from "commander";
import { SDK_VERSION } from "../version.js";
import { type CommandEntry, type CommandGroup, commands } from "./commands/index.js";
import type { CommandContext } from "./context.js";
import { addGlobalOptions, GLOBAL_HEADING } from "./global-options.js";

/** The command line without its commands' options: the file of a command adds them when it is used. */
export function createProgram(context: CommandContext): Command {
  let used: Command;
  const program = new Command("tinkerts")
    .description("The Tinker API from the command line, with a training server of its own.")
    .version(`tinkerts ${SDK_VERSION}`, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .helpCommand(false)
    .enablePositionalOptions()
    .configureHelp({
      subcommandTerm: (command) => command.name(),
      // What every command has is told last.
      formatHelp(command, helper) {
        const sections = Help.prototype.formatHelp.call(this, command, helper).trimEnd().split("\n\n");
        const isGlobal = (section: string) => section.startsWith(GLOBAL_HEADING);
        const ordered = sections.toSorted((a, b) => Number(isGlobal(a)) - Number(isGlobal(b)));
        return `${ordered.join("\n\n")}\n`;
      },
    })
    .configureOutput({
      outputError: (text, write) =>
        write(text.includes("Did you mean") ? text : `${text.trimEnd()} (see ${fullName(used)} --help)\n`),
    })
    .exitOverride();
  used = program;
  addGlobalOptions(program);
  const add = (parent: Command, entry: CommandEntry | CommandGroup) => {
    const command = parent.command(entry.name).description(entry.summary);
    if (!("load" in entry)) {
      command.helpCommand(false);
      addGlobalOptions(command);
      for (const child of entry.commands) add(command, child);
    }
    parent.hook("preSubcommand", async (_, next) => {
      if (next !== command) return;
      used = command;
      if ("load" in entry) await loadCommand(command, entry, context);
    });
  };
  for (const entry of commands) add(program, entry);
  addHelpCommand(program);
  return program;
}

/** The whole command line, for what is made from all of it: documentation and completion. */
export async function createCompleteProgram(context: CommandContext): Promise<Command> {
  const program = createProgram(context);
  const complete = async (parent: Command, entries: readonly (CommandEntry | CommandGroup)[]) => {
    for (const entry of entries) {
      const command = parent.commands.find((child) => child.name() === entry.name)!;
      if ("load" in entry) await loadCommand(command, entry, context);
      else await complete(command, entry.commands);
    }
  };
  await complete(program, commands);
  return program;
}

async function loadCommand(command: Command, entry: CommandEntry, context: CommandContext): Promise<void> {
  (await entry.load()).define(command, context);
  addGlobalOptions(command);
  const { examples } = entry;
  command.addHelpText(
    "after",
    `\n${[`Example${examples.length > 1 ? "s" : ""}:`, ...examples].join("\n  ")}`,
  );
}

/** `help run list` means `run list --help`, which loads the command before it shows the help. */
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

function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}
