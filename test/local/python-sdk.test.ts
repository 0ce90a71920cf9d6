import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { silent } from "./raw-client.js";

const python = process.env["TINKERTS_PYTHON"] ?? "";
const hasPython = python !== "" && existsSync(python);
if (!hasPython) {
  console.log("python-sdk.test.ts is skipped: set TINKERTS_PYTHON to a Python that has the tinker package.");
}

describe.skipIf(!hasPython)("the official Python SDK", () => {
  it.each<[string, LocalBackendOptions, string]>([
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
  ])(
    "works %s",
    async (_, options, key) => {
      await using backend = await startLocalBackend({ engine: new FakeEngine(), logger: silent, ...options });
      const hasTokens = options.clientConfig?.["pjwt_auth_enabled"] === true;
      expect(await runPython(backend.baseURL, key, fakeModel.name, hasTokens)).toContain("python sdk ok");
    },
    120_000,
  );
});

function runPython(baseURL: string, key: string, model: string, hasTokens: boolean): Promise<string> {
  const script = fileURLToPath(new URL("./python-sdk.py", import.meta.url));
  const env = {
    ...process.env,
    TINKER_BASE_URL: baseURL,
    TINKER_API_KEY: key,
    MODEL: model,
    ...(hasTokens ? { HAS_TOKENS: "1" } : {}),
  };
  return new Promise((resolve, reject) => {
    execFile(python, [script], { env, timeout: 100_000 }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${error.message}\n${stdout}\n${stderr}`));
    });
  });
}
