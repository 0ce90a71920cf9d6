import { spawn, spawnSync } from "node:child_process";
import { main } from "./command.js";

/** Why there is no pseudo-terminal here; undefined where there is one. */
export const noTerminal: string | undefined =
  process.platform === "linux" && spawnSync("script", ["--version"]).status === 0
    ? undefined
    : "util-linux's script is not installed, so nothing can be driven through a pseudo-terminal";

export interface Terminal {
  /** Everything the terminal has shown: standard output and standard error, and the echo of what was typed. */
  text(): string;
  /** Waits until the pattern shows up in what was shown after the last match of `seen`. */
  seen(pattern: RegExp): Promise<RegExpExecArray>;
  /** Types text as it is: "\r" is the return key, "\x03" Ctrl-C, "\x04" Ctrl-D. */
  type(text: string): void;
  /** The exit code, once the command has ended. */
  readonly ended: Promise<number>;
  close(): void;
}

/** Starts the command in a pseudo-terminal of the given size. */
export function openTerminal(
  args: readonly string[],
  options: { cwd?: string; env?: Record<string, string>; columns?: number; rows?: number } = {},
): Terminal {
  const { columns = 80, rows = 24, cwd, env } = options;
  const quoted = [process.execPath, main, ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`);
  const command = `stty cols ${columns} rows ${rows}; exec ${quoted.join(" ")}`;
  const child = spawn("script", ["-qfec", command, "/dev/null"], {
    ...(cwd !== undefined && { cwd }),
    env: { ...process.env, TERM: "xterm-256color", NO_COLOR: "", SHELL: "/bin/sh", ...env },
    stdio: "pipe",
  });
  let text = "";
  let position = 0;
  const looks = new Set<() => void>();
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    text += piece;
    for (const look of looks) look();
  });
  // A terminal that is gone takes no more keys.
  child.stdin.on("error", () => {});
  const ended = new Promise<number>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? -1));
  });
  return {
    text: () => text,
    type: (keys) => void child.stdin.write(keys),
    ended,
    close: () => void child.kill("SIGKILL"),
    seen: (pattern) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const found = pattern.exec(text.slice(position));
          if (found === null) return;
          position += found.index + found[0].length;
          looks.delete(look);
          resolve(found);
        };
        looks.add(look);
        look();
        ended.then(
          (code) => looks.has(look) && reject(new Error(`ended with ${code} before ${pattern}: ${text}`)),
          reject,
        );
      }),
  };
}
