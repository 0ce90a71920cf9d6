import { cpSync, existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { CancelledError, EngineInputError } from "../../src/local/engine/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { folderForTests } from "../support/folder-for-tests.js";
import {
  adam,
  asHeard,
  crossEntropy,
  listener,
  lora,
  randomTokens,
  sampleCall,
  trainingData,
} from "./engines.js";
import { fixture } from "./golden.js";

const folder = folderForTests("engine-worker");

/** A tokenizer in which token n is the n-th printable character. */
function modelWithTokenizer(): string {
  const path = join(folder, "qwen3");
  cpSync(fixture("qwen3"), path, { recursive: true });
  const characters = Array.from({ length: 64 }, (_, i) => String.fromCharCode(33 + i));
  const vocab = Object.fromEntries(characters.map((character, i) => [character, i]));
  writeFileSync(
    join(path, "tokenizer.json"),
    JSON.stringify({
      version: "1.0",
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: { type: "Split", pattern: { Regex: "" }, behavior: "Isolated", invert: false },
      post_processor: null,
      decoder: { type: "Fuse" },
      model: { type: "BPE", vocab, merges: [], unk_token: null, byte_fallback: false },
    }),
  );
  return path;
}

describe.each([
  ["in this thread", true],
  ["in a worker", false],
])("the engine %s", (_, inThread) => {
  const compiled = existsSync(new URL("../../dist/local/engine/engine-worker.node.js", import.meta.url));
  it.runIf(inThread || compiled)(
    "trains, samples, stops at strings, reports errors by class, and closes",
    async () => {
      const path = modelWithTokenizer();
      const engine = await startEngine({ models: [{ name: "qwen3", path }], threads: 2, inThread });
      expect(await engine.models()).toEqual([
        {
          name: "qwen3",
          maxContextLength: 128,
          vocabSize: 64,
          eosTokenIds: expect.any(Array),
          tokenizerPath: path,
          arch: "qwen3",
          parameters: expect.any(Number),
        },
      ]);
      // Sent at once, without waiting: the order of the calls is the order of execution.
      const created = engine.createAdapter("a", "qwen3", lora);
      const pass = engine.forwardBackward(crossEntropy("a", trainingData(3, 1)));
      const step = engine.optimStep("a", adam);
      const cloned = engine.cloneAdapter("a", "s");
      const prompt = randomTokens(8, 1);
      const sampled = engine.sample(sampleCall(prompt, { adapterId: "s" }));
      await Promise.all([created, pass, step, cloned]);
      expect((await pass).logprobs[0]).toBeInstanceOf(Float32Array);
      const { tokens } = (await sampled).sequences[0]!;
      const text = String.fromCharCode(...[...tokens].map((token) => 33 + token));
      const stop = text.slice(6, 9);
      const stopped = await engine.sample(sampleCall(prompt, { adapterId: "s", stopStrings: ["~~", stop] }));
      expect(stopped.sequences[0]!.tokens).toEqual(tokens.slice(0, text.indexOf(stop) + 3));
      expect(stopped.sequences[0]!.stopReason).toBe("stop");

      await expect(engine.exportAdapter("nobody", { optimizer: false })).rejects.toBeInstanceOf(
        EngineInputError,
      );
      const endless = sampleCall(prompt, { numSamples: 2000, maxTokens: 100 });
      const cancelled = engine.sample(endless);
      engine.cancelSample(endless.requestId);
      await expect(cancelled).rejects.toBeInstanceOf(CancelledError);
      await engine.close();
      await expect(engine.sample(sampleCall(prompt))).rejects.toThrow("the engine was closed");
    },
  );

  it.runIf(inThread || compiled)(
    "tells of each token once, in order and before the end, also where others take a sample's pages",
    async () => {
      const models = [{ name: "qwen3", path: fixture("qwen3") }];
      const cacheBytes = 16 * (2 * 4 * 2 * 16 * 16);
      const engine = await startEngine({ models, threads: 1, inThread, cacheBytes });
      let open = 0;
      let heardBefore = 0;
      const ask = async (session: string, seed: number, changes: object) => {
        const { heard, onToken } = listener();
        open += 1;
        const call = sampleCall(randomTokens(18 + seed, seed), { session, seed, ...changes });
        const result = await engine.sample(call, (token) => {
          heardBefore = Math.max(heardBefore, open);
          onToken(token);
        });
        open -= 1;
        expect(heard).toEqual(asHeard(result));
      };
      const smaller = [1, 2, 3, 4, 5, 6].flatMap((seed) =>
        ["x", "y", "z"].map((session) =>
          ask(session, seed, { numSamples: 3, maxTokens: 70, topkSampleLogprobs: 2 }),
        ),
      );
      // It needs nine of sixteen pages, so the others are interrupted.
      await Promise.all([...smaller, ask("large", 2, { maxTokens: 109 })]);
      expect(heardBefore).toBe(19);
      await engine.close();
    },
  );

  it.runIf(inThread || compiled)("says why it cannot start", async () => {
    const models = [{ name: "x", path: join(folder, "missing") }];
    await expect(startEngine({ models, inThread })).rejects.toThrow(/cannot read .*config\.json/);
  });
});
