import { createInterface, type Interface } from "node:readline";
import { Writable } from "node:stream";
import type { CommandContext } from "../context.js";
import { printableLines } from "./text.js";

/** Whether input and output are a terminal, so that questions can be asked. */
export function canAsk({ stdin, stderr }: CommandContext): boolean {
  return stdin.isTTY === true && stderr.isTTY === true;
}

/** Asks a question on the terminal; only "y" and "yes" mean yes. Ctrl-C interrupts the command. */
export async function confirm(context: CommandContext, question: string): Promise<boolean> {
  // Without line editing, the terminal itself turns Ctrl-C into a signal.
  const lines = createInterface({ input: context.stdin, output: context.stderr, terminal: false });
  const answer = await ask(lines, `${printableLines(question)} [y/N] `, context.interruption());
  return /^y(es)?$/i.test(answer.trim());
}

/** Asks for a secret: typed characters are not shown. Ctrl-C interrupts the command. */
export async function askSecret(context: CommandContext, question: string): Promise<string> {
  const signal = context.interruption();
  // With line editing, the terminal echoes nothing, and readline's output is discarded.
  const output = new Writable({ write: (_piece, _encoding, done) => done() });
  const lines = createInterface({ input: context.stdin, output, terminal: true, historySize: 0 });
  // Line editing also keeps Ctrl-C from becoming a signal.
  lines.on("SIGINT", () => process.emit("SIGINT"));
  context.stderr.write(printableLines(question));
  const answer = await ask(lines, "", signal);
  context.stderr.write("\n");
  return answer;
}

/** Reads one line from the terminal; empty at the end of the input. */
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
