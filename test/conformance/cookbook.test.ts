import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPythonModule, lastLine, runPython } from "./judge.js";

explainSkip("cookbook.test.ts");

interface Runs {
  readonly reinforced: { readonly rewards: number[]; readonly kl: number[] };
  readonly supervised: { readonly trained: number[]; readonly evaluated: number[] };
}

it.skipIf(!hasPythonModule("tinker_cookbook", "cookbook.test.ts"))(
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
);
