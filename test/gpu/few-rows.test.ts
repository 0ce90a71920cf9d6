import { afterAll, describe, expect, it } from "vitest";
import { normal, randomModel, seededRandom } from "../../scripts/random-model.mjs";
import { type Kernels, sliceBuffer } from "../../src/local/engine/kernels/kernels.js";
import { relativeError } from "../../src/local/engine/kernels/test-support.js";
import {
  createWebGpuKernels,
  type GpuContext,
} from "../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { type BaseModel, loadBaseModel } from "../../src/local/engine/model/base-model.js";
import { PAGE_SIZE, PagePool } from "../../src/local/engine/sampling/page-pool.js";
import { pagedForward } from "../../src/local/engine/sampling/paged-forward.js";
import { LoraAdapter } from "../../src/local/engine/training/adapter.js";
import { createReferenceKernels } from "../engine/reference-kernels.js";
import { openKernels } from "./gpus.js";

const gpu = await openKernels();
/** Shaders as they are made for hardware: SwiftShader gets the ones that compile fast. */
const asHardware = await (async () => {
  const { gpu: device } = (await openKernels()) as Kernels & GpuContext;
  return createWebGpuKernels({ ...device, info: { ...device.info, isSoftware: false } });
})();
afterAll(() => Promise.all([gpu.close(), asHardware.close()]));

interface Case {
  config: Record<string, unknown>;
  dtype: "BF16" | "F16" | "F32";
  /** Of the adapters; 0 stands for none. */
  ranks: number[];
  /** For each row: the tokens before it, and which adapter it has. */
  rows: [before: number, adapter: number][];
  trains?: { trainAttn?: boolean; trainMlp?: boolean; trainUnembed?: boolean };
}

const shape = (type: string, sizes: number[], more: Record<string, unknown> = {}) => {
  const [hidden, layers, heads, kvHeads, headDim, intermediate, vocabulary] = sizes;
  return {
    model_type: type,
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    intermediate_size: intermediate,
    vocab_size: vocabulary,
    max_position_embeddings: 256,
    rms_norm_eps: 1e-5,
    rope_theta: 1e4,
    tie_word_embeddings: true,
    hidden_act: "silu",
    ...more,
  };
};

const CASES: Record<string, Case> = {
  "one row, sizes that are multiples of four": {
    config: shape("qwen3", [64, 2, 4, 2, 16, 128, 200]),
    dtype: "BF16",
    ranks: [8],
    rows: [[5, 0]],
  },
  "biases on everything, odd sizes, odd rank": {
    config: shape("llama", [37, 2, 3, 3, 6, 83, 131], { attention_bias: true, tie_word_embeddings: false }),
    dtype: "F32",
    ranks: [5],
    rows: [3, 1, 17, 40, 2].map((before) => [before, 0]),
  },
  "eight rows, some with more keys than a workgroup takes": {
    config: shape("qwen2", [50, 1, 6, 2, 10, 270, 90]),
    dtype: "F16",
    ranks: [20],
    rows: [70, 1, 130, 64, 63, 9, 8, 7].map((before) => [before, 0]),
  },
  "no adapter": {
    config: shape("qwen3", [40, 2, 2, 1, 22, 61, 77]),
    dtype: "BF16",
    ranks: [],
    rows: [
      [70, -1],
      [3, -1],
    ],
  },
  "no adapter, biases": {
    config: shape("llama", [40, 1, 2, 1, 8, 64, 77], { attention_bias: true }),
    dtype: "BF16",
    ranks: [],
    rows: [[6, -1]],
  },
  "two adapters in one batch": {
    config: shape("qwen3", [48, 2, 2, 1, 16, 96, 64]),
    dtype: "BF16",
    ranks: [3, 32],
    rows: [
      [4, 0],
      [9, 0],
      [5, 1],
    ],
  },
  "an adapter on attention alone": {
    config: shape("qwen3", [32, 1, 2, 2, 8, 40, 50]),
    dtype: "F32",
    ranks: [4],
    rows: [
      [4, 0],
      [66, 0],
    ],
    trains: { trainMlp: false, trainUnembed: false },
  },
  "an adapter on the MLP alone": {
    config: shape("mistral", [32, 1, 2, 2, 8, 40, 50]),
    dtype: "F32",
    ranks: [4],
    rows: [
      [4, 0],
      [66, 0],
    ],
    trains: { trainAttn: false },
  },
};

/** What the last rows' logits are, after two more tokens each. */
async function logitsOn(kernels: Kernels, { config, dtype, ranks, rows, trains }: Case) {
  const files = () => randomModel(config, { dtype, deviation: 0.15, values: 40_009 });
  const model = await loadBaseModel(kernels, "model", files());
  const adapters = await Promise.all(
    ranks.map((rank, index) => adapter(kernels, model, rank, index, trains)),
  );
  const pool = new PagePool(kernels, model.config, 1 << 22);
  const question = { draws: [], targets: [], topTokens: 0, wantsLogits: true };
  const sequences = rows.map(([before, index], row) => ({
    lora: adapters[index]?.weights,
    pages: Array.from({ length: Math.ceil((before + 3) / PAGE_SIZE) }, () => pool.take()),
    tokens: Array.from({ length: before + 3 }, (_, at) => (7 * at + 3 * row) % model.config.vocabSize),
    before,
  }));
  const forward = async (start: (before: number) => number, count: (before: number) => number) => {
    const mark = kernels.mark();
    const { logits } = pagedForward(
      kernels,
      model,
      pool,
      sequences.map(({ before, ...each }) => ({
        ...each,
        start: start(before),
        count: count(before),
        questions: [question],
      })),
    );
    // There may be room for more rows.
    const values = await kernels.download(sliceBuffer(logits, 0, rows.length * model.config.vocabSize));
    kernels.release(mark);
    return values;
  };
  await forward(
    () => 0,
    (before) => before + 1,
  );
  const first = await forward(
    (before) => before + 1,
    () => 1,
  );
  const second = await forward(
    (before) => before + 2,
    () => 1,
  );
  const page = sequences[0]!.pages[0]!;
  pool.copyPages([1, 2].map(() => ({ from: page, to: pool.take() })));
  const pages = [pool.keys(0), pool.values(0)];
  const cached = await Promise.all(pages.map((page) => kernels.download(page)));
  pool.close();
  for (const each of adapters) each.close();
  return [first, second, ...cached];
}

/** Values by chance in all tensors, so that B counts too. */
async function adapter(
  kernels: Kernels,
  model: BaseModel,
  rank: number,
  seed: number,
  trains: Case["trains"],
): Promise<LoraAdapter> {
  const lora = { rank, seed, trainAttn: true, trainMlp: true, trainUnembed: true, ...trains };
  const created = LoraAdapter.create(kernels, model, lora);
  const state = await created.export({ optimizer: false });
  created.close();
  const random = seededRandom(seed + 1);
  for (const { data } of Object.values(state.tensors)) {
    for (let i = 0; i < data.length; i++) data[i] = 0.2 * normal(random);
  }
  return LoraAdapter.restore(kernels, model, state, false);
}

describe("the decoder over few rows", () => {
  it.each(Object.keys(CASES))("%s", async (name) => {
    const expected = await logitsOn(createReferenceKernels(), CASES[name]!);
    const actual = await logitsOn(gpu, CASES[name]!);
    expected.forEach((values, index) => {
      expect(relativeError(actual[index]!, values), `result ${index}`).toBeLessThan(1e-5);
    });
  });

  it.each([
    ["one row", [[300, 0]]],
    ["five rows", [7, 2, 290, 0, 4].map((before) => [before, 0])],
  ] as [string, Case["rows"]][])("with the shaders of hardware: %s", async (_, rows) => {
    const config = shape("qwen3", [512, 1, 4, 2, 32, 264, 60], { max_position_embeddings: 512 });
    const wide: Case = { config, dtype: "BF16", ranks: [12], rows };
    const expected = await logitsOn(createReferenceKernels(), wide);
    const actual = await logitsOn(asHardware, wide);
    expected.forEach((values, index) => {
      expect(relativeError(actual[index]!, values), `result ${index}`).toBeLessThan(1e-5);
    });
  });

  it("gives the same bits twice", async () => {
    for (const { ranks, ...rest } of Object.values(CASES).slice(1, 3)) {
      const run = () => logitsOn(gpu, { ...rest, ranks });
      expect(await run()).toEqual(await run());
    }
  });
});
