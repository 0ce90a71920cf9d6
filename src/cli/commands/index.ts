/** Every command by name, with its line in `--help`; its file is loaded when the command is used. */
import type { CommandModule } from "../context.js";

export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  readonly load: () => Promise<CommandModule>;
}

export const commands: readonly CommandEntry[] = [
  {
    name: "quickstart",
    summary: "teach a small model something on this machine, in about a minute",
    load: () => import("./quickstart.js"),
  },
  {
    name: "serve",
    summary: "run a Tinker server on this machine",
    load: () => import("./serve.js"),
  },
  {
    name: "version",
    summary: "print the version",
    load: () => import("./version.js"),
  },
];
