import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { gpuEnvironment } from "./gpus.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** `npm run fuzz:gpu` runs more. */
const SEEDS = 16;
/** Ends a run that hangs; on a busy machine it takes many times as long as alone. */
const MAX_MS = 45 * 60_000;

it(`computes what the CPU computes, for ${SEEDS} random models, adapters and batches`, {
  timeout: MAX_MS,
}, async () => {
  const args = ["scripts/fuzz-gpu.mjs", "--seeds", String(SEEDS)];
  const run = promisify(execFile)(process.execPath, args, { cwd: root, env: gpuEnvironment() });
  // It exits with 1 where a case differs, and has said which.
  const { stdout } = await run.catch((error: { stdout: string }) => error);
  const result = JSON.parse(stdout.trim().split("\n").at(-1)!);
  expect(result).toMatchObject({ seeds: SEEDS, failures: [], pass: true });
  const compared = Object.keys(result.worst).sort();
  expect(compared).toEqual(["gradient", "gradientNorm", "logprob", "loss", "moment", "sample"]);
});
