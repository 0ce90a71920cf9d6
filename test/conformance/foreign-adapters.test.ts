import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ModelInput, ServiceClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { explainSkip, hasPythonModule, lastLine, python, pythonFile, versionOf } from "./judge.js";
import { SEED } from "./judged.js";
import { writeReport } from "./report.js";

const FILE = "foreign-adapters.test.ts";
const BASE = "test/base";
const CASES = ["two-modules", "patterns", "rslora", "one-layer", "tied-head"];
const folder = folderForTests("foreign");

explainSkip(FILE);
const canRun = hasPythonModule("peft", FILE) && hasPythonModule("transformers", FILE);

describe.skipIf(!canRun)("adapters that PEFT made, judged by PEFT", () => {
  let backend: LocalBackend;
  let service: ServiceClient;
  let judged: { prompt: number[]; logprobs: Record<string, number[]> };
  beforeAll(async () => {
    const args = [pythonFile("foreign_adapters.py"), folder, String(SEED)];
    judged = lastLine(execFileSync(python, args, { encoding: "utf8", stdio: "pipe", timeout: 220_000 }));
    const model = { name: BASE, path: join(folder, "base") };
    const engine = await startEngine({ models: [model], threads: 1, inThread: true });
    backend = await startLocalBackend({ engine, listen: false, logger: silent });
    service = new ServiceClient({ ...backend });
  });
  afterAll(async () => {
    writeReport("foreign-adapters", { version: versionOf("peft"), cases: CASES });
    await service?.close();
    await backend?.close();
  });

  it.each(CASES)("are imported with what they compute: %s", async (name) => {
    const { samplerPath } = await backend.importAdapter(join(folder, name), { baseModel: BASE });
    const sampler = await service.createSamplingClient({ modelPath: samplerPath });
    const [, ...ours] = await sampler.computeLogprobs(ModelInput.fromInts(judged.prompt));
    const theirs = judged.logprobs[name]!;
    expect(ours).toHaveLength(theirs.length);
    for (const [index, value] of ours.entries()) expect(value).toBeCloseTo(theirs[index]!, 3);
  });

  it("are refused with DoRA", async () => {
    const imported = backend.importAdapter(join(folder, "dora"), { baseModel: BASE });
    await expect(imported).rejects.toThrow(/adapters with use_dora \(true\) are not supported/);
  });
});
