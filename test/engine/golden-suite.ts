import { beforeAll, describe, expect, it } from "vitest";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import type { BaseModel } from "../../src/local/engine/model/base-model.js";
import { linearForward } from "../../src/local/engine/model/linear.js";
import { packedForward, packSequences } from "../../src/local/engine/model/packed-forward.js";
import { LoraAdapter } from "../../src/local/engine/training/adapter.js";
import {
  goldenCall,
  goldenModels,
  largestDifference,
  loadFixture,
  readGolden,
  readPeftAdapter,
  relativeError,
  runPass,
} from "./golden.js";

export const goldenLosses = [
  "cross_entropy",
  "cross_entropy_soft",
  "importance_sampling",
  "ppo",
  "ppo_tokens",
  "cispo",
  "cispo_tokens",
  "dro",
];

/** Errors below these are float32 in another order. */
export interface GoldenTolerance {
  logits: number;
  gradients: number;
  weights: number;
}

/** The logits of every token of a sequence, of the base model or with its adapter. */
export async function logitsOf(
  kernels: Kernels,
  adapter: LoraAdapter,
  tokens: Int32Array,
  useAdapter: boolean,
): Promise<Float32Array> {
  const { model } = adapter;
  const rows = tokens.length;
  const mark = kernels.mark();
  const lora = useAdapter ? adapter.weights : undefined;
  const { hidden } = packedForward(kernels, model, packSequences(kernels, [tokens]), lora, "nothing");
  const logits = kernels.scratch(rows * model.config.vocabSize);
  const adapters = lora?.head ? [{ adapter: lora.head, start: 0, rows }] : [];
  linearForward(kernels, { layer: model.weights.head, out: logits, x: hidden, rows, adapters });
  const result = await kernels.download(logits);
  kernels.release(mark);
  return result;
}

/** What transformers, PEFT and torch computed must come out of these kernels. */
export function goldenSuite(kernels: Kernels, tolerance: GoldenTolerance): void {
  describe.each(goldenModels)("%s against transformers and PEFT", (name) => {
    const golden = readGolden(name);
    let model: BaseModel;
    beforeAll(async () => {
      model = await loadFixture(kernels, name);
    });

    const adapterOf = () => LoraAdapter.restore(kernels, model, readPeftAdapter(name), false);

    it("computes the same logits, without and with the adapter that PEFT saved", async () => {
      const adapter = adapterOf();
      for (const [index] of golden.lengths.entries()) {
        const tokens = Int32Array.from(golden.tensors[`tokens.${index}`]!.data);
        for (const [key, useAdapter] of [
          ["logits", false],
          ["adapted_logits", true],
        ] as const) {
          const expected = golden.tensors[`${key}.${index}`]!.data;
          const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
          const actual = await logitsOf(kernels, adapter, tokens, useAdapter);
          expect(largestDifference(actual, expected) / largest).toBeLessThan(tolerance.logits);
        }
      }
      adapter.close();
    });

    it.each(goldenLosses)("computes the loss and the gradients of %s", async (loss) => {
      expect(golden.losses).toEqual(goldenLosses);
      const adapter = adapterOf();
      const { metrics } = await runPass(kernels, adapter, goldenCall(golden, loss));
      const expectedLoss = golden.tensors[`loss.${loss}`]!.data[0]!;
      expect(Math.abs(metrics["loss:sum"]! - expectedLoss)).toBeLessThan(
        1e-4 * Math.max(1, Math.abs(expectedLoss)),
      );
      const gradients = await adapter.exportGradients();
      for (const [tensor, gradient] of Object.entries(gradients)) {
        const expected = golden.tensors[`gradient.${loss}.${tensor}`]!.data;
        expect(relativeError(gradient, expected), tensor).toBeLessThan(tolerance.gradients);
      }
      adapter.close();
    });

    it("takes the same five AdamW steps, some of them clipped", async () => {
      const adapter = adapterOf();
      for (let step = 0; step < 5; step++) {
        await runPass(kernels, adapter, goldenCall(golden, "cross_entropy"));
        await adapter.step({
          learningRate: 3e-3,
          beta1: 0.9,
          beta2: 0.95,
          eps: 1e-8,
          weightDecay: 0.1,
          gradClipNorm: step % 2 === 0 ? 0.5 : 0,
        });
      }
      const exported = await adapter.export({ optimizer: false });
      for (const [tensor, { data }] of Object.entries(exported.tensors)) {
        const expected = golden.tensors[`after_five_steps.${tensor}`]!.data;
        expect(relativeError(data, expected), tensor).toBeLessThan(tolerance.weights);
      }
      adapter.close();
    });

    it("exports the tensors exactly as PEFT names, shapes and fills them", async () => {
      const adapter = adapterOf();
      expect((await adapter.export({ optimizer: false })).tensors).toEqual({
        ...readPeftAdapter(name).tensors,
      });
      adapter.close();
    });
  });
}
