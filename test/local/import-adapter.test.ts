import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type Adapter,
  encodeSafetensors,
  type FloatTensor,
  writeAdapter,
} from "../../src/checkpoints/index.js";
import { SafetensorsFile } from "../../src/checkpoints/safetensors-file.node.js";
import { ModelInput, ServiceClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { randomTokens } from "../engine/engines.js";
import { fixture } from "../engine/golden.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { silent } from "./raw-client.js";

const BASE = "test/tiny";
const home = folderForTests("import");
let folders = 0;
const newFolder = () => join(home, `made-${folders++}`);

/** Weights of the base model by module. */
const weights = new Map<string, FloatTensor>();
const file = new SafetensorsFile(join(fixture("qwen3"), "model.safetensors"));
for (const name of file.header.tensors.keys()) weights.set(name, file.read(name));
file.close();

/** What an adapter changes, with the alpha that its module has by the rules of PEFT. */
interface Change {
  readonly module: string;
  readonly rank: number;
  readonly scale: number;
}

const valueAt = (seed: number, index: number) => Math.sin(seed * 12.9 + index * 78.2) / 3;

function matricesOf({ module, rank }: Change, seed: number): { a: FloatTensor; b: FloatTensor } {
  const [outputs, inputs] = (weights.get(`${module}.weight`) ?? weights.get("model.embed_tokens.weight")!)
    .shape as [number, number];
  const matrix = (shape: [number, number], from: number) => ({
    shape,
    data: Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => valueAt(from, i)),
  });
  return { a: matrix([rank, inputs], seed), b: matrix([outputs, rank], seed + 0.5) };
}

async function adapterOf(changes: readonly Change[], settings: Partial<Adapter>): Promise<string> {
  const tensors: Record<string, FloatTensor> = {};
  for (const [seed, change] of changes.entries()) {
    const { a, b } = matricesOf(change, seed);
    tensors[`base_model.model.${change.module}.lora_A.weight`] = a;
    tensors[`base_model.model.${change.module}.lora_B.weight`] = b;
  }
  const folder = newFolder();
  await writeAdapter(folder, {
    baseModel: BASE,
    rank: 4,
    alpha: 6,
    targetModules: "all-linear",
    tensors,
    ...settings,
  });
  return folder;
}

/** A model folder with the changes in its weights. */
function expectedModel(changes: readonly Change[]): string {
  const folder = newFolder();
  mkdirSync(folder);
  const tensors: Record<string, FloatTensor> = {};
  for (const [name, { shape, data }] of weights) tensors[name] = { shape, data: data.slice() };
  for (const [seed, change] of changes.entries()) {
    const { a, b } = matricesOf(change, seed);
    const { shape, data } = tensors[`${change.module}.weight`]!;
    for (let row = 0; row < shape[0]!; row++) {
      for (let column = 0; column < shape[1]!; column++) {
        let sum = 0;
        for (let k = 0; k < change.rank; k++)
          sum += b.data[row * change.rank + k]! * a.data[k * shape[1]! + column]!;
        data[row * shape[1]! + column]! += change.scale * sum;
      }
    }
  }
  writeFileSync(join(folder, "model.safetensors"), encodeSafetensors(tensors));
  cpSync(join(fixture("qwen3"), "config.json"), join(folder, "config.json"));
  return folder;
}

const Q = "model.layers.0.self_attn.q_proj";
const V = "model.layers.1.self_attn.v_proj";
const DOWN = "model.layers.0.mlp.down_proj";

const KINDS: readonly (readonly [string, readonly Change[], Partial<Adapter>])[] = [
  [
    "queries and values alone",
    [
      { module: Q, rank: 4, scale: 6 / 4 },
      { module: V, rank: 4, scale: 6 / 4 },
    ],
    {},
  ],
  [
    "ranks and alphas of modules",
    [
      { module: Q, rank: 2, scale: 5 / 2 },
      { module: V, rank: 4, scale: 6 / 4 },
      { module: DOWN, rank: 7, scale: 6 / 7 },
    ],
    {
      otherSettings: {
        rank_pattern: { q_proj: 2, "layers.0.mlp.down_proj": 7 },
        alpha_pattern: { "^.*q_proj": 5 },
      },
    },
  ],
  [
    "rank-stabilised LoRA",
    [
      { module: Q, rank: 4, scale: 6 / Math.sqrt(4) },
      { module: DOWN, rank: 4, scale: 6 / Math.sqrt(4) },
    ],
    { otherSettings: { use_rslora: true } },
  ],
];

describe("adapters of other programs", () => {
  let backend: LocalBackend;
  let service: ServiceClient;
  const paths: string[] = [];
  beforeAll(async () => {
    const models = KINDS.map(([, changes], index) => ({
      name: `test/expected-${index}`,
      path: expectedModel(changes),
    }));
    const engine = await startEngine({
      models: [{ name: BASE, path: fixture("qwen3") }, ...models],
      threads: 1,
      inThread: true,
    });
    backend = await startLocalBackend({ engine, listen: false, logger: silent });
    service = new ServiceClient({ ...backend });
    for (const [, changes, settings] of KINDS) paths.push(await adapterOf(changes, settings));
  });
  afterAll(async () => {
    await service.close();
    await backend.close();
  });

  const prompt = ModelInput.fromInts([...randomTokens(24, 3)]);
  async function logprobs(source: { baseModel: string } | { modelPath: string }): Promise<number[]> {
    const sampler = await service.createSamplingClient(source);
    return (await sampler.computeLogprobs(prompt)).slice(1) as number[];
  }

  it.each(KINDS.map(([name], index) => [name, index] as const))(
    "are sampled from with what they change: %s",
    async (_, index) => {
      const { samplerPath, baseModel } = await backend.importAdapter(paths[index]!);
      expect(baseModel).toBe(BASE);
      const [imported, expected, plain] = await Promise.all([
        logprobs({ modelPath: samplerPath }),
        logprobs({ baseModel: `test/expected-${index}` }),
        logprobs({ baseModel: BASE }),
      ]);
      for (const [at, value] of imported.entries()) expect(value).toBeCloseTo(expected[at]!, 3);
      expect(Math.max(...imported.map((value, at) => Math.abs(value - plain[at]!)))).toBeGreaterThan(0.05);
    },
  );

  it("are trained on: what was filled up learns too", async () => {
    const { statePath, rank } = await backend.importAdapter(paths[1]!);
    expect(rank).toBe(7);
    const training = await service.createTrainingClientFromState(statePath);
    const tokens = [...randomTokens(12, 5)];
    const datum = {
      modelInput: tokens,
      lossFnInputs: { targetTokens: tokens, weights: tokens.map(() => 1) },
    };
    const losses: number[] = [];
    for (let step = 0; step < 8; step++) {
      const pass = training.forwardBackward([datum], "cross_entropy");
      const update = training.optimStep({ learningRate: 1e-2 });
      losses.push((await pass).metrics["loss:sum"]!);
      await update;
    }
    expect(losses.at(-1)!).toBeLessThan(0.9 * losses[0]!);
  });

  it("have one checkpoint, however often they are imported", async () => {
    const once = await backend.importAdapter(paths[0]!);
    expect(await backend.importAdapter(paths[0]!)).toEqual(once);
    const { baseModel, loraRank } = await service.createRestClient().getWeightsInfo(once.statePath);
    expect({ baseModel, loraRank }).toEqual({ baseModel: BASE, loraRank: 4 });
    const other = await backend.importAdapter(paths[0]!, { name: "again" });
    expect(other.statePath).toBe(once.statePath.replace(/imported$/, "again"));
  });

  const one: Change = { module: Q, rank: 4, scale: 1 };
  it.each<[string, () => Promise<string>, RegExp]>([
    [
      "DoRA",
      () => adapterOf([one], { otherSettings: { use_dora: true } }),
      /use_dora \(true\) are not supported/,
    ],
    [
      "modules saved whole",
      () => adapterOf([one], { otherSettings: { modules_to_save: ["lm_head"] } }),
      /modules_to_save \(\["lm_head"\]\) are not supported/,
    ],
    [
      "an embedding",
      () => adapterOf([{ ...one, module: "model.embed_tokens" }], {}),
      /no place for 1 of the 1 modules of the adapter: model\.embed_tokens\. The built-in backend has adapters of q_proj/,
    ],
    [
      "another base model",
      () => adapterOf([one], { baseModel: "Qwen/Qwen3-8B" }),
      /names Qwen\/Qwen3-8B, and this backend has test\/tiny/,
    ],
    [
      "another shape",
      () =>
        adapterOf([one], {
          tensors: {
            [`base_model.model.${Q}.lora_A.weight`]: { shape: [4, 3], data: new Float32Array(12) },
            [`base_model.model.${Q}.lora_B.weight`]: { shape: [32, 4], data: new Float32Array(128) },
          },
        }),
      /does not fit the model: its lora_A of model\.layers\.0\.self_attn\.q_proj has shape \[4,3\], expected \[4,16\]/,
    ],
    ["a folder without an adapter", async () => home, /is not a PEFT adapter/],
  ])("are refused: %s", async (_, make, sentence) => {
    const before = (await service.createRestClient().listTrainingRuns()).items.length;
    await expect(backend.importAdapter(await make())).rejects.toThrow(sentence);
    expect((await service.createRestClient().listTrainingRuns()).items.length).toBe(before);
  });
});
