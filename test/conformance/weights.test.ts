import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { exportModel } from "../../src/checkpoints/export/export-model.node.js";
import { SafetensorsFile } from "../../src/checkpoints/safetensors-file.node.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { explainSkip, hasPythonModule, python, pythonFile, versionOf } from "./judge.js";
import { SEED } from "./judged.js";
import { writeReport } from "./report.js";

const FILE = "weights.test.ts";
const CASES = [
  ...[
    "deepseek",
    "deepseek-fp8-experts",
    "deepseek-fp8-native",
    "gpt-oss",
    "gpt-oss-mxfp4",
    "kimi-int4",
    "llama",
  ],
  ...["nemotron", "qwen2", "qwen3", "qwen3-float16", "qwen3-float32-real", "qwen3-moe", "qwen3-tied"],
  ...["qwen3-vl-moe", "qwen3.5", "qwen3.5-moe"],
];
const TIED_HEAD = "qwen3-tied-head";
const folder = folderForTests("weights");

explainSkip(FILE);
const canRun = hasPythonModule("tinker_cookbook", FILE) && hasPythonModule("torch", FILE);

interface PlainTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

function tensorsIn(path: string): Map<string, PlainTensor> {
  const all = new Map<string, PlainTensor>();
  for (const name of readdirSync(path)
    .filter((file) => file.endsWith(".safetensors"))
    .sort()) {
    const file = new SafetensorsFile(join(path, name));
    for (const [tensor, { dtype, shape, start, end }] of file.header.tensors) {
      all.set(tensor, { dtype, shape, bytes: file.readBytes(tensor, 0, end - start) });
    }
    file.close();
  }
  return all;
}

const readJson = (path: string): unknown => JSON.parse(readFileSync(path, "utf8"));

/** Equal to the last bit, but for values that were summed in another order. */
function expectSameTensors(ours: Map<string, PlainTensor>, theirs: Map<string, PlainTensor>, exact: boolean) {
  expect([...ours.keys()].sort()).toEqual([...theirs.keys()].sort());
  for (const [name, { dtype, shape, bytes }] of theirs) {
    const own = ours.get(name)!;
    expect({ name, dtype: own.dtype, shape: own.shape }).toEqual({ name, dtype, shape });
    if (exact) expect(Buffer.from(own.bytes).equals(bytes), name).toBe(true);
    else {
      const [mine, other] = [own.bytes, bytes].map((each) => new Float32Array(new Uint8Array(each).buffer));
      for (const [i, value] of mine!.entries()) {
        if (Math.abs(value - other![i]!) > 1e-5) throw new Error(`${name}[${i}]: ${value}, not ${other![i]}`);
      }
    }
  }
}

describe.skipIf(!canRun)("merged weights and served adapters, judged by the Python cookbook", () => {
  const report = { version: "", seed: SEED, merged: [] as string[], served: [] as string[], tensors: 0 };
  afterAll(() => writeReport("weights", report));
  beforeAll(() => {
    execFileSync(python, [pythonFile("weights.py"), folder, String(SEED)], {
      stdio: "pipe",
      timeout: 220_000,
    });
    report.version = versionOf("tinker-cookbook");
    expect(readdirSync(folder).sort()).toEqual([...CASES, TIED_HEAD].sort());
  });
  const at = (name: string, part: string) => join(folder, name, part);

  it.each(CASES)("merges %s as build_hf_model does", async (name) => {
    const quantized = /fp8/.test(name) ? { quantize: "experts-fp8" as const } : {};
    await exportModel({
      to: "hf",
      adapter: at(name, "adapter"),
      baseModel: at(name, "base"),
      output: at(name, "ours"),
      ...quantized,
    });
    const [ours, theirs] = [tensorsIn(at(name, "ours")), tensorsIn(at(name, "merged"))];
    expectSameTensors(ours, theirs, !name.endsWith("real"));
    expect(readJson(at(name, "ours/config.json"))).toEqual(readJson(at(name, "merged/config.json")));
    report.merged.push(name);
    report.tensors += theirs.size;
  });

  it("gives a tied head a tensor of its own, where the cookbook changes the embedding, too", async () => {
    const output = at(TIED_HEAD, "ours");
    await exportModel({
      to: "hf",
      adapter: at(TIED_HEAD, "adapter"),
      baseModel: at(TIED_HEAD, "base"),
      output,
    });
    const [ours, theirs] = [tensorsIn(output), tensorsIn(at(TIED_HEAD, "merged"))];
    const embedding = "model.embed_tokens.weight";
    theirs.set("lm_head.weight", theirs.get(embedding)!);
    theirs.set(embedding, tensorsIn(at(TIED_HEAD, "base")).get(embedding)!);
    expectSameTensors(ours, theirs, true);
  });

  it.each(CASES)("prepares an adapter of %s for vLLM as build_lora_adapter does", async (name) => {
    const served = exportModel({
      to: "vllm",
      head: "keep",
      adapter: at(name, "adapter"),
      baseModel: at(name, "base"),
      output: at(name, "adapter-for-vllm"),
    });
    if (name.startsWith("deepseek")) {
      expect(readFileSync(at(name, "served.txt"), "utf8")).toContain("does not support LoRA adapter serving");
      await expect(served).rejects.toThrow("load no adapters of DeepSeek V3");
      return;
    }
    await served;
    const [ours, theirs] = [at(name, "adapter-for-vllm"), at(name, "served")];
    expectSameTensors(tensorsIn(ours), tensorsIn(theirs), true);
    const config = readJson(join(theirs, "adapter_config.json")) as object;
    expect(readJson(join(ours, "adapter_config.json"))).toEqual({
      ...config,
      base_model_name_or_path: "some/base",
    });
    report.served.push(name);
  });
});
