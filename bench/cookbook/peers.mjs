// What the benches of the cookbook measure against: the built-in backend in a process of its own, and the Python cookbook.
import { execFileSync, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Names a Python with tinker-cookbook; without it ours is measured alone. */
export const python = process.env.TINKERTS_PYTHON;

const path = (name) => fileURLToPath(new URL(name, import.meta.url));

export class MeasuredServer {
  #process = spawn(process.execPath, ["--expose-gc", path("./server.mjs")], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  #answers = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();

  static async start() {
    const server = new MeasuredServer();
    server.backend = await server.#answer();
    return server;
  }

  /** What the work comes to, with the share of its time in which the engine had work, and what the server keeps of it. */
  async measured(work) {
    await this.#ask();
    const result = await work();
    const { busyMs, wallMs, memory } = await this.#ask();
    return { ...result, busy: busyMs / wallMs, serverMemory: memory };
  }

  /** Runs a script and gives the JSON of its last line. */
  runPython(script, args, { cwd, env }) {
    const { baseURL, apiKey } = this.backend;
    const output = execFileSync(python, [path(script), ...args], {
      cwd,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      maxBuffer: 1 << 28,
      env: { ...process.env, ...env, TINKER_BASE_URL: baseURL, TINKER_API_KEY: apiKey },
    });
    return JSON.parse(output.trim().split("\n").at(-1));
  }

  close() {
    this.#process.stdin.end();
  }

  async #ask() {
    this.#process.stdin.write("\n");
    return this.#answer();
  }

  async #answer() {
    return JSON.parse((await this.#answers.next()).value);
  }
}

/** Keeps the figures of the faster run: other work on the machine only ever slows one down. */
export function takeBest(figures, run) {
  if (!(figures.seconds <= run.seconds)) Object.assign(figures, run);
}

export function round(value) {
  return Math.round(value * 1000) / 1000;
}
