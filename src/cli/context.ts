import type { Command } from "commander";
import type { RestClient, ServiceClient } from "tinkerts";
import type { GlobalOptions } from "./global-options.js";

/** What a command is given besides its own options. */
export interface CommandContext {
  readonly stdin: NodeJS.ReadStream;
  /** Data alone: what another program may read. */
  readonly stdout: NodeJS.WriteStream;
  /** Everything else. */
  readonly stderr: NodeJS.WriteStream;
  /** Tells the person at the terminal something, in lines that break between words. */
  notify(text: string): void;
  /** The options every command has, wherever on the command line they stood. Known once the action runs. */
  globals(): GlobalOptions;
  /** Aborted by Ctrl-C, which from the first call on no longer ends the process; a second one still does. */
  interruption(): AbortSignal;
  /** The server the global options name. Ended with the command; Ctrl-C gives up its requests. */
  restClient(): Promise<RestClient>;
  /** The same server, with a session that begins with the first call that needs one and ends with the command. */
  serviceClient(): Promise<ServiceClient>;
}

/** What the file of a command exports: adds arguments, options and the action. */
export interface CommandModule {
  define(command: Command, context: CommandContext): void;
}

/** A wrong way of calling a command that its options alone do not show; exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
