/** The official Python package in processes of its own. */
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const python = process.env["TINKERTS_PYTHON"] ?? "";
export const hasPython = python !== "" && existsSync(python);

/** The Python of evaluation harnesses and of other APIs' clients, whose needs are their own. */
export const harnessPython = process.env["TINKERTS_HARNESSES"] || python;

/** Says why a suite does not run; its tests are skipped. */
export function explainSkip(file: string): void {
  if (!hasPython) {
    console.log(
      `${file} is skipped: npm run conformance runs it, or set TINKERTS_PYTHON to a Python that has the tinker package.`,
    );
  }
}

/** Whether Python has a package too; says so where it has not. */
export function hasPythonModule(name: string, file: string, interpreter = python): boolean {
  if (!hasPython) return false;
  const isThere =
    spawnSync(interpreter, ["-c", `import importlib.util as u; assert u.find_spec("${name}")`]).status === 0;
  if (!isThere) console.log(`${file} is skipped: ${interpreter} has no ${name}.`);
  return isThere;
}

/** The installed version of a Python package. */
export function versionOf(name: string): string {
  const script = `from importlib.metadata import version; print(version("${name}"))`;
  return spawnSync(python, ["-c", script], { encoding: "utf8" }).stdout.trim();
}

export const pythonFile = (name: string): string =>
  fileURLToPath(new URL(`./python/${name}`, import.meta.url));

interface Script {
  readonly baseURL: string;
  readonly apiKey: string;
  readonly model: string;
  /** Variables of the script's own. */
  readonly env?: Readonly<Record<string, string>>;
  readonly folder?: string;
  /** The Python that runs it: the one with the newest package by default. */
  readonly interpreter?: string;
}

/** Runs a script as a client of a server, and gives what it printed. */
export function runPython(script: string, client: Script): Promise<string> {
  const options = {
    env: {
      ...process.env,
      TINKER_BASE_URL: client.baseURL,
      TINKER_API_KEY: client.apiKey,
      MODEL: client.model,
      HF_HUB_OFFLINE: "1",
      ...client.env,
    },
    timeout: 220_000,
    maxBuffer: 2 ** 26,
    ...(client.folder === undefined ? {} : { cwd: client.folder }),
  };
  return new Promise((resolve, reject) => {
    execFile(client.interpreter ?? python, [pythonFile(script)], options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${error.message}\n${stdout}\n${stderr}`));
    });
  });
}

/** Runs a script that needs no server, and gives what it printed. */
export function execPython(script: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { timeout: 220_000, maxBuffer: 2 ** 26 };
    execFile(python, [pythonFile(script), ...args], options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${error.message}\n${stdout}\n${stderr}`));
    });
  });
}

/** The last line a script printed, which is its result. */
export const lastLine = <T>(output: string): T => JSON.parse(output.trim().split("\n").at(-1)!) as T;

/** A process that judges messages: one JSON command a line in, one JSON answer a line out. */
export class Judge implements AsyncDisposable {
  readonly #child;
  readonly #lines;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(script = "wire.py") {
    this.#child = spawn(python, [pythonFile(script)], { stdio: ["pipe", "pipe", "inherit"] });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

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
