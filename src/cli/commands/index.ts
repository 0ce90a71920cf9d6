/** Every command by name, with its line in `--help`; its file is loaded when the command is used. */
import type { CommandModule } from "../context.js";

export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  readonly load: () => Promise<CommandModule>;
}

/** Commands that are called with two words. */
export interface CommandGroup {
  readonly name: string;
  readonly summary: string;
  readonly commands: readonly CommandEntry[];
}

export const commands: readonly (CommandEntry | CommandGroup)[] = [
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
    name: "models",
    summary: "list the models a server offers",
    load: () => import("./models.js"),
  },
  {
    name: "whoami",
    summary: "show who the API key belongs to",
    load: () => import("./whoami.js"),
  },
  {
    name: "run",
    summary: "look at training runs",
    commands: [
      { name: "list", summary: "list training runs, the latest first", load: () => import("./run-list.js") },
      { name: "info", summary: "show one training run", load: () => import("./run-info.js") },
    ],
  },
  {
    name: "version",
    summary: "print the version",
    load: () => import("./version.js"),
  },
];
