import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { decodeSafetensors, type FloatTensor } from "../../src/checkpoints/safetensors.js";
import type {
  AdapterState,
  EngineDatum,
  ForwardBackwardCall,
  ForwardBackwardResult,
  LossName,
} from "../../src/local/engine/engine.js";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import { type BaseModel, loadBaseModel } from "../../src/local/engine/model/base-model.js";
import { openModelFolder } from "../../src/local/engine/model/model-folder.node.js";
import type { LoraAdapter } from "../../src/local/engine/training/adapter.js";
import { trainingPass } from "../../src/local/engine/training/training-pass.js";

export const goldenModels = ["qwen3", "llama", "qwen2"] as const;
export type GoldenModel = (typeof goldenModels)[number];

export const fixture = (path: string) =>
  fileURLToPath(new URL(`../fixtures/engine/${path}`, import.meta.url));

/** The base model of a fixture. */
export async function loadFixture(kernels: Kernels, name: string): Promise<BaseModel> {
  const files = openModelFolder(fixture(name));
  return loadBaseModel(kernels, name, files).finally(() => files.close());
}

export interface Golden {
  tensors: Record<string, FloatTensor>;
  lengths: number[];
  rank: number;
  beta: number;
  losses: string[];
}

export function readGolden(model: GoldenModel): Golden {
  const { tensors } = decodeSafetensors(readFileSync(fixture(`${model}/golden.safetensors`)));
  return { tensors, ...JSON.parse(readFileSync(fixture(`${model}/golden.json`), "utf8")) };
}

export function readPeftAdapter(model: GoldenModel): AdapterState {
  const { tensors } = decodeSafetensors(readFileSync(fixture(`${model}/adapter/adapter_model.safetensors`)));
  return {
    lora: { rank: readGolden(model).rank, seed: 0, trainAttn: true, trainMlp: true, trainUnembed: true },
    tensors,
  };
}

/** The call that computes the named loss of make_engine_fixtures.py. */
export function goldenCall(golden: Golden, name: string): ForwardBackwardCall {
  const soft = name === "cross_entropy_soft";
  const perToken = name.endsWith("_tokens");
  const lossFn = name.replace(/_(soft|tokens)$/, "") as LossName;
  const data = golden.lengths.map((_, index): EngineDatum => {
    const floats = (key: string) => golden.tensors[`${key}.${index}`]!.data;
    const ints = (key: string) => Int32Array.from(floats(key));
    if (soft) {
      return {
        tokens: ints("tokens"),
        targetTokens: ints("soft_targets"),
        targetsPerToken: 3,
        weights: floats("soft_weights"),
      };
    }
    return {
      tokens: ints("tokens"),
      targetTokens: ints("targets"),
      targetsPerToken: 1,
      ...(lossFn === "cross_entropy"
        ? { weights: floats("weights") }
        : { advantages: floats("advantages"), logprobs: floats("old") }),
      ...(perToken ? { clipLowThreshold: floats("clip_low"), clipHighThreshold: floats("clip_high") } : {}),
    };
  });
  const lossFnConfig: Record<string, number> = lossFn === "dro" ? { beta: golden.beta } : {};
  return { adapterId: "a", data, lossFn, lossFnConfig, forwardOnly: false };
}

export async function runPass(
  kernels: Kernels,
  adapter: LoraAdapter,
  call: ForwardBackwardCall,
): Promise<ForwardBackwardResult> {
  const pass = trainingPass(kernels, adapter, call);
  for (;;) {
    const { done, value } = await pass.next();
    if (done) return value;
  }
}

/** |a - b| / |b| in the Euclidean norm. */
export function relativeError(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length)
    throw new Error(`${actual.length} values, expected ${expected.length}`);
  let difference = 0;
  let size = 0;
  for (let i = 0; i < expected.length; i++) {
    difference += (actual[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
  }
  return Math.sqrt(difference) / Math.max(Math.sqrt(size), 1e-12);
}

export function largestDifference(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length)
    throw new Error(`${actual.length} values, expected ${expected.length}`);
  return expected.reduce((most, value, i) => Math.max(most, Math.abs(value - actual[i]!)), 0);
}
