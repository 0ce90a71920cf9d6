import { createInterface, type Interface } from "node:readline";
import { Writable } from "node:stream";
import type { CommandContext } from "../context.js";

/** Whether there is somebody to ask. */
export function canAsk({ stdin, stderr }: CommandContext): boolean {
  return stdin.isTTY === true && stderr.isTTY === true;
}

/** Asks a question on the terminal; only "y" and "yes" are a yes. Ctrl-C interrupts the command. */
export async function confirm(context: CommandContext, question: string): Promise<boolean> {
  // Without line editing the terminal itself turns Ctrl-C into a signal.
  const lines = createInterface({ input: context.stdin, output: context.stderr, terminal: false });
  const answer = await ask(lines, `${question} [y/N] `, context.interruption());
  return /^y(es)?$/i.test(answer.trim());
}

/** Asks for something nobody may see: what is typed is not shown. Ctrl-C interrupts the command. */
export async function askSecret(context: CommandContext, question: string): Promise<string> {
  const signal = context.interruption();
  // With line editing the terminal echoes nothing, and what readline would show goes nowhere.
  const output = new Writable({ write: (_piece, _encoding, done) => done() });
  const lines = createInterface({ input: context.stdin, output, terminal: true, historySize: 0 });
  // It also keeps Ctrl-C from becoming a signal.
  lines.on("SIGINT", () => process.emit("SIGINT"));
  context.stderr.write(question);
  const answer = await ask(lines, "", signal);
  context.stderr.write("\n");
  return answer;
}

/** One line from the terminal; the end of the input is an empty one. */
function ask(lines: Interface, question: string, signal: AbortSignal): Promise<string> {
  return new Promise<string>((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    lines.question(question, resolve);
    lines.once("close", () => {
      signal.removeEventListener("abort", onAbort);
      resolve("");
    });
  }).finally(() => lines.close());
}
