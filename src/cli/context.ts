import type { Command } from "commander";
import type { RestClient, ServiceClient } from "tinkerts";
import type { GlobalOptions } from "./global-options.js";

/** Passed to every command besides its own options. */
export interface CommandContext {
  readonly stdin: NodeJS.ReadStream;
  /** Standard output: only data, which other programs may read. */
  readonly stdout: NodeJS.WriteStream;
  /** Standard error: everything else. */
  readonly stderr: NodeJS.WriteStream;
  /** Tells the user something, in lines that break between words. */
  notify(text: string): void;
  /** Options that every command has, wherever they were on the command line. Set once the action runs. */
  globals(): GlobalOptions;
  /** Makes this command use another server than the hosted one. */
  useServer(baseURL: string): void;
  /** Sets how messages name the server, if not by the address in the options. */
  nameServer(name: string): void;
  /** Aborted by Ctrl-C. The first call stops Ctrl-C from ending the process; a second Ctrl-C still does. */
  interruption(): AbortSignal;
  /** A REST client of the chosen server. Closed when the command ends; Ctrl-C aborts its requests. */
  restClient(): Promise<RestClient>;
  /**
   * A service client of the chosen server. Its session begins with the first call that needs one and ends with the
   * command.
   */
  serviceClient(): Promise<ServiceClient>;
}

/** Exported by each command file: adds arguments, options and the action. */
export interface CommandModule {
  define(command: Command, context: CommandContext): void;
}

/** The command line is wrong in a way that its options alone do not show; exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
