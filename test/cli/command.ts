import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The built command: `npm test` builds it first. */
export const main = fileURLToPath(new URL("../../dist/bundle/cli.js", import.meta.url));

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts the command; `finished` resolves when it has ended. */
export function start(
  args: readonly string[],
  {
    input,
    stdin,
    ...options
  }: { cwd?: string; env?: Record<string, string>; input?: string; stdin?: "open" } = {},
): { child: ChildProcess; finished: Promise<Finished>; seen: (pattern: RegExp) => Promise<RegExpExecArray> } {
  const child = spawn(process.execPath, [main, ...args], {
    ...options,
    env: { ...process.env, ...options.env },
    stdio: [input === undefined && stdin === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  if (stdin === undefined) child.stdin?.end(input);
  const output = { stdout: "", stderr: "" };
  let look = () => {};
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (text: string) => {
      output[name] += text;
      look();
    });
  }
  const finished = new Promise<Finished>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, ...output }));
  });
  const seen = (pattern: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      look = () => {
        const found = pattern.exec(output.stdout);
        if (found) resolve(found);
      };
      look();
      finished.then(({ code, stderr }) => reject(new Error(`ended with ${code}: ${stderr}`)), reject);
    });
  return { child, finished, seen };
}

/** Ctrl-C behind the first step that a training tells of, however fast the others would come. */
export async function interruptAtStep(
  args: readonly string[],
  { cwd, env }: { cwd: string; env: Record<string, string> },
): Promise<Finished> {
  const go = join(cwd, `go-${randomUUID()}`);
  const hold = new URL("./hold-at-step.mjs", import.meta.url).href;
  const { child, finished } = start(args, {
    cwd,
    env: { ...env, NODE_OPTIONS: `--import=${hold}`, HOLD_UNTIL: go },
  });
  await new Promise<void>((resolve, reject) => {
    let said = "";
    child.stderr?.on("data", (text: string) => {
      said += text;
      if (/step +\d+\//.test(said)) resolve();
    });
    finished.then(({ stderr }) => reject(new Error(`ended too early: ${stderr}`)), reject);
  });
  child.kill("SIGINT");
  writeFileSync(go, "");
  return finished;
}

export const run = (args: readonly string[], options?: Parameters<typeof start>[1]) =>
  start(args, options).finished;
