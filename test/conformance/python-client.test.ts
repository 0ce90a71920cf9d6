import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "../local/fake-engine.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPython, lastLine, runPython } from "./judge.js";
import { writeReport } from "./report.js";

explainSkip("python-client.test.ts");

const CONFIGURATIONS: [string, LocalBackendOptions, string][] = [
  ["as it is", {}, "tml-local"],
  [
    "with keys, tokens, compressed bodies, one poll for all samples, and models created from checkpoints",
    {
      apiKeys: ["tml-one", "tml-two"],
      clientConfig: {
        pjwtAuthEnabled: true,
        protoCompressFwdbwd: true,
        sampleUseRetrieveFutures: true,
        createModelViaLoadWeights: true,
      },
    },
    "tml-one",
  ],
];

/** Tells the scripts that the server gives tokens for keys. */
const tokenEnv = ({ clientConfig }: LocalBackendOptions): Record<string, string> =>
  clientConfig?.pjwtAuthEnabled === true ? { HAS_TOKENS: "1" } : {};

interface Row {
  readonly client: string;
  readonly method: string;
  readonly sync?: string;
  readonly async?: string;
}

describe.skipIf(!hasPython)("the official Python SDK", () => {
  it.each(CONFIGURATIONS)(
    "works %s",
    async (_, options, apiKey) => {
      await using backend = await startLocalBackend({ engine: new FakeEngine(), logger: silent, ...options });
      const settings = { baseURL: backend.baseURL, apiKey, model: fakeModel.name, env: tokenEnv(options) };
      expect(await runPython("sdk.py", settings)).toContain("python sdk ok");
    },
    120_000,
  );

  it.each(CONFIGURATIONS)(
    "finds every method of its clients answered by the real engine, %s",
    async (name, options, apiKey) => {
      await using backend = await startLocalBackend({ logger: silent, ...options });
      const folder = await mkdtemp(join(tmpdir(), "tinkerts-methods-"));
      const env = tokenEnv(options);
      const settings = { baseURL: backend.baseURL, apiKey, model: defaultModel.name, env, folder };
      const output = await runPython("methods.py", settings).finally(() => rm(folder, { recursive: true }));
      const found = lastLine<{ rows: Row[]; version: string; torch: boolean }>(output);
      writeReport("HAS_TOKENS" in env ? "methods-with-tokens" : "methods", { ...found, configuration: name });
      const bad = found.rows.filter((row) => /FAILED|MISSING/.test(`${row.sync} ${row.async}`));
      expect(bad).toEqual([]);
      expect(found.rows.length).toBeGreaterThan(50);
    },
    240_000,
  );
});
