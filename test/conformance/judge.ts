/** The official Python package in a process of its own: one JSON command a line in, one JSON answer a line out. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const python = process.env["TINKERTS_PYTHON"] ?? "";
export const hasPython = python !== "" && existsSync(python);

/** Says why a suite does not run; its tests are skipped. */
export function explainSkip(file: string): void {
  if (!hasPython) {
    console.log(
      `${file} is skipped: npm run conformance runs it, or set TINKERTS_PYTHON to a Python that has the tinker package.`,
    );
  }
}

export const pythonFile = (name: string): string =>
  fileURLToPath(new URL(`./python/${name}`, import.meta.url));

export class Judge implements AsyncDisposable {
  readonly #child = spawn(python, [pythonFile("wire.py")], { stdio: ["pipe", "pipe", "inherit"] });
  readonly #lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  #turn: Promise<unknown> = Promise.resolve();

  ask<T>(command: string, options: object = {}): Promise<T> {
    const answer = this.#turn.then(async () => {
      this.#child.stdin.write(`${JSON.stringify({ command, ...options })}\n`);
      const line = await this.#lines.next();
      if (line.done === true) throw new Error(`The Python side ended while it was asked to ${command}.`);
      const { ok, failed } = JSON.parse(line.value) as { ok?: T; failed?: string };
      if (failed !== undefined) throw new Error(`${command}: ${failed}`);
      return ok as T;
    });
    this.#turn = answer.catch(() => undefined);
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const gone = once(this.#child, "exit");
    this.#child.stdin.end();
    await gone;
  }
}
