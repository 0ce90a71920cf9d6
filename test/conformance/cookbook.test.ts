import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPython, lastLine, python, runPython } from "./judge.js";

explainSkip("cookbook.test.ts");

function hasCookbook(): boolean {
  try {
    execFileSync(python, ["-c", "import tinker_cookbook, torch"], { stdio: "ignore" });
    return true;
  } catch {
    console.log("cookbook.test.ts is skipped: tinker-cookbook, or PyTorch, is not installed.");
    return false;
  }
}

interface Runs {
  readonly reinforced: { readonly rewards: number[]; readonly kl: number[] };
  readonly supervised: { readonly trained: number[]; readonly evaluated: number[] };
}

it.skipIf(!hasPython || !hasCookbook())(
  "the Python cookbook trains, supervised and by rewards, up to the end of the context that the server announces",
  async () => {
    await using backend = await startLocalBackend({ logger: silent });
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-cookbook-"));
    const { baseURL, apiKey } = backend;
    const settings = { baseURL, apiKey, model: defaultModel.name, folder };
    const output = await runPython("cookbook.py", settings).finally(() => rm(folder, { recursive: true }));
    const { reinforced, supervised } = lastLine<Runs>(output);
    expect(reinforced.rewards).toHaveLength(3);
    // The sampler and the trainer agree on every logprob.
    for (const kl of reinforced.kl) expect(Math.abs(kl)).toBeLessThan(1e-4);
    expect(supervised.trained).toHaveLength(4);
    expect(supervised.trained.at(-1)).toBeLessThan(supervised.trained[0]!);
    expect(supervised.evaluated.at(-1)).toBeLessThan(supervised.evaluated[0]!);
  },
  240_000,
);
