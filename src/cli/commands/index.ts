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
    name: "doctor",
    summary: "check that everything a program needs is there",
    load: () => import("./doctor.js"),
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
  { name: "sample", summary: "let a model continue a text", load: () => import("./sample.js") },
  { name: "chat", summary: "talk to a model", load: () => import("./chat.js") },
  {
    name: "run",
    summary: "look at training runs",
    commands: [
      { name: "list", summary: "list training runs, the latest first", load: () => import("./run-list.js") },
      { name: "info", summary: "show one training run", load: () => import("./run-info.js") },
    ],
  },
  {
    name: "checkpoint",
    summary: "manage checkpoints: list, download, publish, delete, merge",
    commands: [
      {
        name: "list",
        summary: "list checkpoints, the latest first",
        load: () => import("./checkpoint-list.js"),
      },
      { name: "info", summary: "show one checkpoint", load: () => import("./checkpoint-info.js") },
      {
        name: "download",
        summary: "download a checkpoint into a folder; goes on where an earlier try stopped",
        load: () => import("./checkpoint-download.js"),
      },
      {
        name: "push-hf",
        summary: "publish a checkpoint on the Hugging Face Hub as a PEFT adapter",
        load: () => import("./checkpoint-push-hf.js"),
      },
      {
        name: "merge",
        summary: "add an adapter to the weights of its base model",
        load: () => import("./checkpoint-merge.js"),
      },
      {
        name: "publish",
        summary: "let everybody read a checkpoint",
        load: () => import("./checkpoint-publish.js"),
      },
      {
        name: "unpublish",
        summary: "keep a published checkpoint to yourself again",
        load: () => import("./checkpoint-unpublish.js"),
      },
      {
        name: "set-ttl",
        summary: "say when a checkpoint expires, or that it never does",
        load: () => import("./checkpoint-set-ttl.js"),
      },
      {
        name: "delete",
        summary: "delete checkpoints for good, by their paths or all of a run",
        load: () => import("./checkpoint-delete.js"),
      },
    ],
  },
  {
    name: "session",
    summary: "look at sessions and what they did",
    commands: [
      { name: "list", summary: "list sessions, the latest first", load: () => import("./session-list.js") },
      { name: "info", summary: "show one session", load: () => import("./session-info.js") },
      {
        name: "export-trace",
        summary: "download the timeline of a session, for ui.perfetto.dev",
        load: () => import("./session-export-trace.js"),
      },
    ],
  },
  {
    name: "billing",
    summary: "see what was used and what it costs",
    commands: [
      { name: "usage", summary: "show usage hour by hour", load: () => import("./billing-usage.js") },
      {
        name: "checkpoint-storage",
        summary: "show how much checkpoints take now, and what that costs",
        load: () => import("./billing-checkpoint-storage.js"),
      },
    ],
  },
  {
    name: "audit",
    summary: "show who did what on a day",
    load: () => import("./audit.js"),
  },
  {
    name: "completion",
    summary: "print a script that completes commands in your shell",
    load: () => import("./completion.js"),
  },
  {
    name: "version",
    summary: "print the version",
    load: () => import("./version.js"),
  },
];
