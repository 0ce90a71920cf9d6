import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { readTokenizer } from "../../src/local/tokenizer.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPython, lastLine, runPython } from "./judge.js";

explainSkip("tokenizers.test.ts");

it.skipIf(!hasPython)(
  "every way to a tokenizer that docs/coming-from-python.md shows leads to the model's own",
  async () => {
    await using backend = await startLocalBackend({ logger: silent, apiKeys: ["tml-one"] });
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-tokenizers-"));
    const settings = { baseURL: backend.baseURL, apiKey: "tml-one", model: defaultModel.name, folder };
    const output = await runPython("find_tokenizers.py", settings).finally(() =>
      rm(folder, { recursive: true }),
    );
    const found = lastLine<Record<string, number[]>>(output);
    const expected = readTokenizer(defaultModel.path)!.encode("What is 2 + 3?");
    expect(Object.keys(found).length).toBeGreaterThanOrEqual(4);
    for (const tokens of Object.values(found)) expect(tokens).toEqual(expected);
  },
  120_000,
);
