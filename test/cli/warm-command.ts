import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type Finished, main, run } from "./command.js";

const script = fileURLToPath(new URL("./warm-host.mjs", import.meta.url));
const waiting = new Map<number, { resolve: (finished: Finished) => void; reject: (error: Error) => void }>();
const ranAlone = new Set<string>();
let host: ChildProcess | undefined;
let count = 0;

function startHost(): ChildProcess {
  const child = fork(script, [main], { execArgv: [], stdio: ["ignore", "inherit", "inherit", "ipc"] });
  child.on("message", ({ id, finished }: { id: number; finished: Finished }) => {
    waiting.get(id)?.resolve(finished);
    waiting.delete(id);
  });
  child.on("exit", (code) => {
    host = undefined;
    for (const { reject } of waiting.values())
      reject(new Error(`The process of the commands ended: ${code}`));
    waiting.clear();
  });
  child.unref();
  return child;
}

/**
 * Runs the command. The first with its words has a process of its own, which must end by itself; those after it share
 * one, where everything is loaded: most of what a command takes is its start.
 */
export function runWarm(
  args: readonly string[],
  options: { cwd?: string; env?: Record<string, string>; input?: string } = {},
): Promise<Finished> {
  const words = args.filter((arg) => !arg.startsWith("-")).slice(0, 2);
  const name = words.join(" ");
  // Node keeps a module that it has loaded, also when its file changes.
  if (!ranAlone.has(name) || args.some((arg) => /\.m?[jt]s$/.test(arg))) {
    ranAlone.add(name);
    return run(args, options);
  }
  host ??= startHost();
  const child = host;
  const id = count++;
  child.ref();
  return new Promise<Finished>((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    const { cwd = process.cwd(), env, input = "" } = options;
    child.send({ id, args, cwd, env: { ...process.env, ...env }, input });
  }).finally(() => {
    if (waiting.size === 0) child.unref();
  });
}
