import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { encodeSafetensors } from "../../src/checkpoints/safetensors.js";
import { adam, crossEntropy, lora, openEngine, randomTokens, sampleCall, trainingData } from "./engines.js";
import { fixture, goldenModels } from "./golden.js";

// Needs a Python with torch, transformers and peft: TINKERTS_PYTHON=/path/to/python npx vitest run test/engine/peft
const python = process.env["TINKERTS_PYTHON"];
if (!python) console.log("test/engine/peft.test.ts: skipped, TINKERTS_PYTHON names no Python with peft");
const folder = mkdtempSync(join(tmpdir(), "peft-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.runIf(python)("an adapter that we trained, read by PEFT", () => {
  it.each(goldenModels)("gives the same logprobs (%s)", async (model) => {
    const engine = await openEngine();
    await engine.createAdapter("a", model, lora);
    for (let step = 0; step < 5; step++) {
      await engine.forwardBackward(crossEntropy("a", trainingData(4, step)));
      await engine.optimStep("a", adam);
    }
    const { tensors } = await engine.exportAdapter("a", { optimizer: false });
    const [rows, vocab] = [20, 64];
    const prompt = randomTokens(rows + 1, 3);
    const call = { adapterId: "a", baseModel: model, maxTokens: 0, topkPromptLogprobs: vocab };
    const { topkPrompt } = await engine.sample(sampleCall(prompt, call));
    await engine.close();
    const logprobs = new Float32Array(rows * vocab);
    topkPrompt!.tokens.forEach((token, cell) => {
      const row = Math.floor(cell / vocab) - 1;
      if (row >= 0) logprobs[row * vocab + token] = topkPrompt!.logprobs[cell]!;
    });
    const adapter = join(folder, model);
    mkdirSync(adapter);
    writeFileSync(join(adapter, "adapter_model.safetensors"), encodeSafetensors(tensors));
    const target_modules = [
      "q_proj",
      "k_proj",
      "v_proj",
      "o_proj",
      "gate_proj",
      "up_proj",
      "down_proj",
      "lm_head",
    ];
    const config = {
      peft_type: "LORA",
      task_type: "CAUSAL_LM",
      r: lora.rank,
      lora_alpha: 32,
      target_modules,
    };
    writeFileSync(join(adapter, "adapter_config.json"), JSON.stringify(config));
    const expected = join(folder, `${model}.safetensors`);
    const tokens = { shape: [rows], data: Float32Array.from(prompt.slice(0, rows)) };
    writeFileSync(
      expected,
      encodeSafetensors({ tokens, logprobs: { shape: [rows, vocab], data: logprobs } }),
    );
    const script = fileURLToPath(new URL("../../scripts/golden/check_adapter.py", import.meta.url));
    const run = spawnSync(python!, [script, fixture(model), adapter, expected], { encoding: "utf8" });
    expect(run.status, run.stderr).toBe(0);
    expect(run.stdout).toContain("largest difference");
  });
});
