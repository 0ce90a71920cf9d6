/** llama.cpp, as npm installs it, in a process of its own. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Folder in which npm has installed `node-llama-cpp`. */
export const llamaFolder = process.env["TINKERTS_LLAMA_CPP"] ?? "";
export const hasLlamaCpp = existsSync(join(llamaFolder, "node_modules/node-llama-cpp"));

/** llama.cpp's library with the quantizers; empty where this platform's has another place. */
export const ggmlLibrary = [
  join(llamaFolder, "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-base.so"),
]
  .filter((path) => existsSync(path))
  .join("");

interface LlamaJob {
  readonly file: string;
  readonly adapter?: string;
  readonly tokens?: readonly number[];
  readonly texts?: readonly string[];
}

interface LlamaResult {
  /** Of each token of the vocabulary, at each position. */
  readonly logprobs: readonly (readonly number[])[];
  readonly encoded: readonly (readonly number[])[];
  readonly type: string;
}

/** Runs models on tokens and texts. */
export function runLlama(jobs: readonly LlamaJob[]): LlamaResult[] {
  const script = fileURLToPath(new URL("./llama/score.mjs", import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, llamaFolder], {
    input: JSON.stringify(jobs),
    encoding: "utf8",
    maxBuffer: 2 ** 28,
    timeout: 220_000,
  });
  if (status !== 0) throw new Error(`llama.cpp ended with ${status}:\n${stderr}`);
  return stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as LlamaResult);
}
