import { Command, CommanderError } from "commander";
import { SDK_VERSION } from "../version.js";
import { commands } from "./commands/index.js";
import { type CommandContext, UsageError } from "./context.js";

const EXIT = { ok: 0, failed: 1, usage: 2, interrupted: 130 } as const;

/** Runs one command line; the answer is the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  const { stdout, stderr } = process;
  ignoreClosedPipes();
  const interrupt = new AbortController();
  const onSignal = () => {
    if (interrupt.signal.aborted) process.exit(EXIT.interrupted);
    interrupt.abort();
  };
  const program = createProgram({
    stdout,
    stderr,
    interruption: () => {
      for (const name of ["SIGINT", "SIGTERM"] as const) {
        if (!process.listeners(name).includes(onSignal)) process.on(name, onSignal);
      }
      return interrupt.signal;
    },
  });
  const failure = (error: unknown): number => {
    // What to say was said by commander itself.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (interrupt.signal.aborted) {
      // A terminal shows the ^C at the end of whatever line it came in.
      stderr.write(stderr.isTTY ? "\ninterrupted\n" : "interrupted\n");
      return EXIT.interrupted;
    }
    stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
    if (program.opts()["verbose"] === true && error instanceof Error) stderr.write(`${error.stack}\n`);
    return error instanceof UsageError ? EXIT.usage : EXIT.failed;
  };
  process.on("uncaughtException", (error) => process.exit(failure(error)));
  try {
    await program.parseAsync(helpAsOption(args), { from: "user" });
    return EXIT.ok;
  } catch (error) {
    return failure(error);
  } finally {
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  }
}

/** `help serve` means `serve --help`, which loads the command before it shows the help. */
function helpAsOption(args: readonly string[]): readonly string[] {
  const [first, command] = args;
  return first === "help" && command !== undefined ? [command, "--help"] : args;
}

function createProgram(context: CommandContext): Command {
  const program = new Command("tinkerts")
    .description("The Tinker API from the command line, with a training server of its own.")
    .version(`tinkerts ${SDK_VERSION}`, "-V, --version", "print the version")
    .option("-v, --verbose", "show where an error came from")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help for a command")
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      outputError: (text, write) =>
        write(text.includes("Did you mean") ? text : `${text.trimEnd()} (see tinkerts --help)\n`),
    })
    .exitOverride();
  for (const { name, summary } of commands) program.command(name).description(summary);
  // Before a command reads its own options, its file adds them.
  program.hook("preSubcommand", async (_, command) => {
    const entry = commands.find(({ name }) => name === command.name());
    (await entry?.load())?.define(command, context);
  });
  return program;
}

/** In `tinkerts ... | head` the reader goes away when it has seen enough. */
function ignoreClosedPipes(): void {
  const onError = (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(EXIT.ok);
  };
  process.stdout.on("error", onError);
  process.stderr.on("error", onError);
}
