import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { gpuEnvironment } from "./gpus.js";

const run = promisify(execFile);
const SCRIPT = fileURLToPath(new URL("deno-training.mjs", import.meta.url));
const FLAGS = ["run", "--allow-all", "--no-lock", "--node-modules-dir=manual", "--unstable-webgpu"];

const hasDeno = await run("deno", ["--version"]).then(
  () => true,
  () => false,
);
if (!hasDeno) console.warn("Deno is skipped: no deno on the PATH");

async function resultOf(command: string, args: string[]) {
  const { stdout } = await run(command, args, { env: gpuEnvironment() });
  return JSON.parse(stdout.trim().split("\n").at(-1)!) as { loss: number; tokens: number[] };
}

describe("Deno, whose compiler of shaders is another", () => {
  it.skipIf(!hasDeno)("trains and samples on its own WebGPU as Node does on the CPU", async () => {
    const expected = await resultOf(process.execPath, [SCRIPT, "cpu"]);
    const actual = await resultOf("deno", [...FLAGS, SCRIPT, "gpu"]);
    expect(actual.loss).toBeCloseTo(expected.loss, 3);
    expect(actual.tokens).toEqual(expected.tokens);
  });
});
