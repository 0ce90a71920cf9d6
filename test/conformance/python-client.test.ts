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
      apiKeys: ["tml-one-key-of-the-test", "tml-two-key-of-the-test"],
      clientConfig: {
        pjwtAuthEnabled: true,
        protoCompressFwdbwd: true,
        sampleUseRetrieveFutures: true,
        createModelViaLoadWeights: true,
      },
    },
    "tml-one-key-of-the-test",
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
  it.each(CONFIGURATIONS)("works %s", async (_, options, apiKey) => {
    await using backend = await startLocalBackend({ engine: new FakeEngine(), logger: silent, ...options });
    const settings = { baseURL: backend.baseURL, apiKey, model: fakeModel.name, env: tokenEnv(options) };
    expect(await runPython("sdk.py", settings)).toContain("python sdk ok");
  });

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
  );

  it("shows its user why the result of a request is gone after a restart", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-restart-"));
    let reached = () => {};
    const isReached = new Promise<void>((resolve) => (reached = resolve));
    class StuckEngine extends FakeEngine {
      override forwardBackward(): Promise<never> {
        reached();
        return new Promise(() => {});
      }
    }
    const shared = { dataDir, logger: silent };
    const first = await startLocalBackend({ ...shared, engine: new StuckEngine() });
    const { baseURL } = first;
    const port = Number(new URL(baseURL).port);
    const output = runPython("restart.py", { baseURL, apiKey: "tml-local", model: fakeModel.name });
    await isReached;
    await first.close();
    await using _ = await startLocalBackend({ ...shared, port, engine: new FakeEngine() });
    expect(lastLine<{ error: string }>(await output).error).toMatch(
      /^Request failed: The result of request \S+ is gone: .*the server was restarted\. Go on from the last saved state/,
    );
    await rm(dataDir, { recursive: true });
  });
});
