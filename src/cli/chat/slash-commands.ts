import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { ChatConversation } from "./conversation.js";

/** Passed to slash commands. */
export interface ChatState {
  readonly model: string;
  readonly conversation: ChatConversation;
  /** Files that this chat wrote and may overwrite. */
  readonly saved: Set<string>;
}

interface SlashCommand {
  readonly name: string;
  readonly argument?: string;
  readonly summary: string;
  /** Reply to the user; undefined ends the chat. */
  readonly run: (state: ChatState, text: string) => string | undefined | Promise<string>;
}

const COMMANDS: readonly SlashCommand[] = [
  {
    name: "/reset",
    summary: "forget what was said; the system message stays",
    run: ({ conversation }) => {
      conversation.forget();
      return "A new conversation begins.";
    },
  },
  {
    name: "/system",
    argument: "[TEXT]",
    summary: "set the system message; without TEXT there is none",
    run: ({ conversation }, text) => {
      conversation.system = text === "" ? undefined : text;
      return text === "" ? "There is no system message now." : "The system message is set.";
    },
  },
  { name: "/save", argument: "FILE", summary: "write the conversation to a JSON file", run: save },
  { name: "/help", summary: "show this list", run: () => help() },
  { name: "/quit", summary: "leave; so does Ctrl-D", run: () => undefined },
];

/** Command names, for completion at the prompt. */
export const slashCommandNames = COMMANDS.map(({ name }) => name);

/** A path such as /etc/hosts starts a message, not a command. */
const COMMAND_LINE = /^(\/[a-z]+)(?:\s+([\s\S]*))?$/;

export function isSlashCommand(message: string): boolean {
  return COMMAND_LINE.test(message);
}

/** Runs a slash command and returns the reply; undefined ends the chat. */
export async function runSlashCommand(state: ChatState, message: string): Promise<string | undefined> {
  const [, name, text = ""] = COMMAND_LINE.exec(message) ?? [];
  const command = COMMANDS.find((one) => one.name === name);
  return command === undefined
    ? `There is no command ${name}; /help lists them.`
    : await command.run(state, text.trim());
}

function help(): string {
  const left = COMMANDS.map(({ name, argument }) => (argument === undefined ? name : `${name} ${argument}`));
  const width = Math.max(...left.map((text) => text.length));
  return [
    ...COMMANDS.map(({ summary }, index) => `  ${left[index]!.padEnd(width)}  ${summary}`),
    "",
    "A line that ends with \\ continues on the next one; pasted text is one message.",
    "Ctrl-C stops an answer.",
  ].join("\n");
}

async function save({ model, conversation, saved }: ChatState, file: string): Promise<string> {
  if (file === "") return "Where to? /save FILE";
  const path = resolve(file);
  const { messages } = conversation;
  try {
    const text = `${JSON.stringify({ model, messages }, null, 2)}\n`;
    await writeFile(path, text, { flag: saved.has(path) ? "w" : "wx" });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === "EEXIST"
      ? `${file} already exists: give another name, or remove it.`
      : `Not saved: ${message}`;
  }
  saved.add(path);
  return `${messages.length} messages saved in ${file}.`;
}
