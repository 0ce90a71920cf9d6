import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { FullTrainer } from "../../scripts/full-trainer.mjs";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { adam, crossEntropy, lora, randomTokens, sampleCall } from "./engines.js";

const folder = mkdtempSync(join(tmpdir(), "real-size-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const shape = {
  model_type: "qwen3",
  hidden_size: 256,
  num_hidden_layers: 2,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 32,
  intermediate_size: 704,
  vocab_size: 512,
  max_position_embeddings: 512,
  tie_word_embeddings: true,
};

/** Large enough for every blocked and threaded path of the kernels, which the tiny models never reach. */
it("trains and samples to the same bits at real size, whatever the threads, neighbours and splits", async () => {
  const kernels = createWasmKernels({ threads: 2 });
  await FullTrainer.create(kernels, shape, { seed: 1, deviation: 0.08 }).save(folder);
  await kernels.close();
  const data = [3, 200, 64, 65, 17, 1].map((length, index) => ({
    tokens: randomTokens(length, index, 512),
    targetTokens: randomTokens(length, index + 100, 512),
    targetsPerToken: 1,
    weights: Float32Array.from({ length }, (_, i) => (index % 2 === 0 || i > length / 2 ? 1 : 0)),
  }));
  const prompt = randomTokens(150, 50, 512);
  const runs = [];
  for (const threads of [1, 3]) {
    const engine = await startEngine({ models: [{ name: "m", path: folder }], threads, inThread: true });
    await engine.createAdapter("a", "m", { ...lora, rank: 32 });
    for (let step = 0; step < 2; step++) {
      await engine.forwardBackward(crossEntropy("a", data.slice(0, threads)));
      await engine.forwardBackward(crossEntropy("a", data.slice(threads)));
      await engine.optimStep("a", adam);
    }
    const sample = (changes: object) => engine.sample(sampleCall(prompt, { baseModel: "m", ...changes }));
    const [result] = await Promise.all([
      sample({ adapterId: "a", numSamples: 2, promptLogprobs: true }),
      ...(threads > 1
        ? [sample({ numSamples: 7 }), sample({ adapterId: "a", prompt: prompt.slice(20) })]
        : []),
    ]);
    for (const { tokens, logprobs } of result.sequences) {
      const all = Int32Array.from([...prompt, ...tokens]);
      const datum = { tokens: all.slice(0, -1), targetTokens: all.slice(1), targetsPerToken: 1 };
      const forward = await engine.forwardBackward(crossEntropy("a", [data[2]!, datum], true));
      expect(logprobs).toEqual(forward.logprobs[1]!.slice(prompt.length - 1));
      expect(result.promptLogprobs!.slice(1)).toEqual(forward.logprobs[1]!.slice(0, prompt.length - 1));
    }
    runs.push({ state: await engine.exportAdapter("a", { optimizer: true }), result });
    await engine.close();
  }
  expect(runs[1]).toEqual(runs[0]);
});
