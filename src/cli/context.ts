import type { Command } from "commander";

/** What a command is given besides its own options. */
export interface CommandContext {
  /** Data alone: what another program may read. */
  readonly stdout: NodeJS.WriteStream;
  /** Everything else. */
  readonly stderr: NodeJS.WriteStream;
  /** Aborted by Ctrl-C, which from the first call on no longer ends the process; a second one still does. */
  interruption(): AbortSignal;
}

/** What the file of a command exports: adds arguments, options and the action. */
export interface CommandModule {
  define(command: Command, context: CommandContext): void;
}

/** A wrong way of calling a command that its options alone do not show; exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
