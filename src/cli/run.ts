import { type Command, CommanderError } from "commander";
import { commandClients, type Ending } from "./clients.js";
import { type CommandContext, UsageError } from "./context.js";
import { readGlobalOptions } from "./global-options.js";
import { printableLines, wrapText } from "./output/text.js";
import { createProgram, fullName } from "./program.js";

const EXIT = { ok: 0, failed: 1, usage: 2, interrupted: 130 } as const;

/** Runs one command line and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  const { stdout, stderr } = process;
  ignoreClosedPipes();
  const interrupt = new AbortController();
  const onSignal = () => {
    if (interrupt.signal.aborted) process.exit(EXIT.interrupted);
    interrupt.abort();
  };
  let current: Command;
  let serverName: string | undefined;
  let usedServer: string | undefined;
  const context: CommandContext = {
    // Opened only on demand: a standard input that was read must be closed.
    get stdin() {
      return process.stdin;
    },
    stdout,
    stderr,
    notify: (text) => {
      const safe = printableLines(text);
      stderr.write(`${stderr.isTTY ? wrapText(safe, stderr.columns || 80) : safe}\n`);
    },
    globals: () => {
      const options = readGlobalOptions(current);
      return { ...options, baseURL: usedServer ?? options.baseURL, serverName };
    },
    useServer: (baseURL) => {
      usedServer = baseURL;
    },
    nameServer: (name) => {
      serverName = name;
    },
    interruption: () => {
      for (const name of ["SIGINT", "SIGTERM"] as const) {
        if (!process.listeners(name).includes(onSignal)) process.on(name, onSignal);
      }
      return interrupt.signal;
    },
    restClient: () => clients.restClient(),
    serviceClient: () => clients.serviceClient(),
  };
  const clients = commandClients(context, () => fullName(current));
  const program = createProgram(context);
  current = program;
  program.hook("preAction", (_, command) => {
    current = command;
    // Conflicting options are refused before anything is done.
    context.globals();
  });
  const failure = async (error: unknown): Promise<number> => {
    // commander has already printed the message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (interrupt.signal.aborted) {
      // A terminal prints ^C at the end of the current line.
      context.notify(stderr.isTTY ? "\ninterrupted" : "interrupted");
      return EXIT.interrupted;
    }
    if (error instanceof UsageError) {
      context.notify(`error: ${error.message}`);
      return EXIT.usage;
    }
    const { explainFailure } = await import("./failure.js");
    const { userFrame } = await import("./user-frame.js");
    const options = context.globals();
    const frame = userFrame(error);
    context.notify(`error: ${explainFailure(error, options)}${frame === undefined ? "" : `\n  at ${frame}`}`);
    if (options.verbose && error instanceof Error) stderr.write(`${printableLines(error.stack ?? "")}\n`);
    return EXIT.failed;
  };
  process.on("uncaughtException", (error) => void failure(error).then((code) => process.exit(code)));
  let ending: Ending = "errored";
  try {
    await program.parseAsync(args, { from: "user" });
    ending = "success";
    return EXIT.ok;
  } catch (error) {
    const code = await failure(error);
    if (code === EXIT.interrupted) ending = "interrupted";
    return code;
  } finally {
    await clients.close(ending);
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  }
}

/** In `tinkerts ... | head`, the reader closes the pipe early. */
function ignoreClosedPipes(): void {
  const onError = (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(EXIT.ok);
  };
  process.stdout.on("error", onError);
  process.stderr.on("error", onError);
}
