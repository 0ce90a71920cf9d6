import { createInterface } from "node:readline";
import type { CommandContext } from "../context.js";

/** Whether there is somebody to ask. */
export function canAsk({ stdin, stderr }: CommandContext): boolean {
  return stdin.isTTY === true && stderr.isTTY === true;
}

/** Asks a question on the terminal; only "y" and "yes" are a yes. Ctrl-C interrupts the command. */
export async function confirm(context: CommandContext, question: string): Promise<boolean> {
  const signal = context.interruption();
  // Without line editing the terminal itself turns Ctrl-C into a signal.
  const lines = createInterface({ input: context.stdin, output: context.stderr, terminal: false });
  const answer = await new Promise<string>((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    lines.question(`${question} [y/N] `, resolve);
    lines.once("close", () => {
      signal.removeEventListener("abort", onAbort);
      // The end of the input is no answer.
      resolve("");
    });
  }).finally(() => lines.close());
  return /^y(es)?$/i.test(answer.trim());
}
