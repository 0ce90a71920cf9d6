import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "../local/fake-engine.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPython, python, pythonFile } from "./judge.js";
import { writeReport } from "./report.js";

explainSkip("python-client.test.ts");

const CONFIGURATIONS: [string, LocalBackendOptions, string][] = [
  ["as it is", {}, "tml-local"],
  [
    "with keys, tokens, compressed bodies, one poll for all samples, and models created from checkpoints",
    {
      apiKeys: ["tml-one", "tml-two"],
      clientConfig: {
        pjwt_auth_enabled: true,
        proto_compress_fwdbwd: true,
        sample_use_retrieve_futures: true,
        create_model_via_load_weights: true,
      },
    },
    "tml-one",
  ],
];

interface Row {
  readonly client: string;
  readonly method: string;
  readonly sync?: string;
  readonly async?: string;
}

describe.skipIf(!hasPython)("the official Python SDK", () => {
  it.each(CONFIGURATIONS)(
    "works %s",
    async (_, options, key) => {
      await using backend = await startLocalBackend({ engine: new FakeEngine(), logger: silent, ...options });
      const hasTokens = options.clientConfig?.["pjwt_auth_enabled"] === true;
      const settings = { baseURL: backend.baseURL, key, model: fakeModel.name, hasTokens };
      expect(await runPython("sdk.py", settings)).toContain("python sdk ok");
    },
    120_000,
  );

  it.each(CONFIGURATIONS)(
    "finds every method of its clients answered by the real engine, %s",
    async (name, options, key) => {
      await using backend = await startLocalBackend({ logger: silent, ...options });
      const hasTokens = options.clientConfig?.["pjwt_auth_enabled"] === true;
      // transformers takes a folder of the model's name for the model, and so asks no hub for its tokenizer.
      const folder = await mkdtemp(join(tmpdir(), "tinkerts-names-"));
      await mkdir(join(folder, "tinkerts"));
      await symlink(defaultModel.path, join(folder, defaultModel.name));
      const settings = { baseURL: backend.baseURL, key, model: defaultModel.name, hasTokens, folder };
      const output = await runPython("methods.py", settings).finally(() => rm(folder, { recursive: true }));
      const found = JSON.parse(output.trim().split("\n").at(-1)!) as {
        rows: Row[];
        version: string;
        torch: boolean;
      };
      writeReport(hasTokens ? "methods-with-tokens" : "methods", { ...found, configuration: name });
      const bad = found.rows.filter((row) => /FAILED|MISSING/.test(`${row.sync} ${row.async}`));
      expect(bad).toEqual([]);
      expect(found.rows.length).toBeGreaterThan(50);
    },
    240_000,
  );
});

interface PythonRun {
  readonly baseURL: string;
  readonly key: string;
  readonly model: string;
  readonly hasTokens: boolean;
  readonly folder?: string;
}

function runPython(script: string, run: PythonRun): Promise<string> {
  const env = {
    ...process.env,
    TINKER_BASE_URL: run.baseURL,
    TINKER_API_KEY: run.key,
    MODEL: run.model,
    HF_HUB_OFFLINE: "1",
    ...(run.hasTokens ? { HAS_TOKENS: "1" } : {}),
  };
  return new Promise((resolve, reject) => {
    const options = {
      env,
      timeout: 220_000,
      maxBuffer: 2 ** 26,
      ...(run.folder === undefined ? {} : { cwd: run.folder }),
    };
    execFile(python, [pythonFile(script)], options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${error.message}\n${stdout}\n${stderr}`));
    });
  });
}
