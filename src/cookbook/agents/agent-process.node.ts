import { type ChildProcess, spawn } from "node:child_process";
import { messageOf, TinkerError } from "../../errors.js";

/** Time between SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;
/** Output of an ended program may be held open by a child that left its process group. */
const MAX_DRAIN_MS = 1_000;
const MAX_OUTPUT_BYTES = 2 ** 20;

/** How a program is started. */
export interface ProcessOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Text on its standard input. */
  readonly input: string;
  /** Ends the program and its child processes. */
  readonly signal: AbortSignal;
}

/** How a program ended, and the last MiB of what it wrote. */
export interface ProcessOutcome {
  readonly exitCode: number | null;
  /** The signal that ended it. */
  readonly endedBy: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Process groups of running programs; all are ended with this process. */
const running = new Set<number>();

/** Runs a program in its own process group. The whole group has ended afterwards. */
export async function runProcess(options: ProcessOptions): Promise<ProcessOutcome> {
  const { command, args, cwd, env, input, signal } = options;
  signal.throwIfAborted();
  const child = spawn(command, [...args], {
    ...{ cwd, env: env as NodeJS.ProcessEnv },
    stdio: ["pipe", "pipe", "pipe"],
    detached: process.platform !== "win32",
    windowsHide: true,
  });
  const stdout = lastBytes(child.stdout);
  const stderr = lastBytes(child.stderr);
  // A program need not read its input.
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  const { pid } = child;
  if (pid !== undefined) keep(pid);
  let killing: ReturnType<typeof setTimeout> | undefined;
  const stop = () => {
    endGroup(child, "SIGTERM");
    killing ??= setTimeout(() => endGroup(child, "SIGKILL"), GRACE_MS);
  };
  signal.addEventListener("abort", stop, { once: true });
  try {
    const { exitCode, endedBy } = await exitOf(child);
    // The program may have left child processes behind.
    endGroup(child, "SIGKILL");
    await drained(child);
    return { exitCode, endedBy, stdout: stdout(), stderr: stderr() };
  } finally {
    signal.removeEventListener("abort", stop);
    clearTimeout(killing);
    if (pid !== undefined) forget(pid);
  }
}

function exitOf(child: ChildProcess): Promise<Pick<ProcessOutcome, "exitCode" | "endedBy">> {
  return new Promise((resolve, reject) => {
    child.once("error", (error) =>
      reject(new TinkerError(`The agent could not be started: ${messageOf(error)}`, { cause: error })),
    );
    child.once("exit", (exitCode, endedBy) => resolve({ exitCode, endedBy }));
  });
}

/** Resolves when the output is read to its end. */
async function drained(child: ChildProcess): Promise<void> {
  const open = [child.stdout, child.stderr].filter((stream) => stream !== null && !stream.closed);
  if (open.length === 0) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => {
      for (const stream of open) stream?.destroy();
      resolve();
    }, MAX_DRAIN_MS);
    child.once("close", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function endGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    if (process.platform === "win32")
      spawn("taskkill", ["/pid", String(pid), "/T", "/F"]).on("error", () => {});
    else process.kill(-pid, signal);
  } catch {
    // It has ended already.
  }
}

function keep(pid: number): void {
  if (running.size === 0) process.on("exit", endAll);
  running.add(pid);
}

function forget(pid: number): void {
  running.delete(pid);
  if (running.size === 0) process.off("exit", endAll);
}

function endAll(): void {
  for (const pid of running) endGroup({ pid } as ChildProcess, "SIGKILL");
}

/** Collects the end of a stream; returns it as text. */
function lastBytes(stream: NodeJS.ReadableStream): () => string {
  let chunks: Buffer[] = [];
  let length = 0;
  stream.on("error", () => {});
  stream.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    length += chunk.length;
    if (length > 2 * MAX_OUTPUT_BYTES) {
      const kept = Buffer.concat(chunks).subarray(-MAX_OUTPUT_BYTES);
      chunks = [Buffer.from(kept)];
      length = kept.length;
    }
  });
  return () => Buffer.concat(chunks).subarray(-MAX_OUTPUT_BYTES).toString("utf8");
}
