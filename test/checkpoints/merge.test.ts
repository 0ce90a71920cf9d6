import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import {
  type Adapter,
  encodeSafetensors,
  mergeAdapter,
  readAdapter,
  writeAdapter,
} from "../../src/checkpoints/index.js";
import { SafetensorsFile } from "../../src/checkpoints/safetensors-file.node.js";
import { EngineCore } from "../../src/local/engine/engine-core.js";
import { folderModel } from "../../src/local/engine/folder-model.node.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { readAdapterFolder } from "../../src/local/store/adapter-files.js";
import { randomTokens, sampleCall } from "../engine/engines.js";
import { fixture, goldenModels, largestDifference } from "../engine/golden.js";
import { folderForTests } from "../support/folder-for-tests.js";

const folder = folderForTests("merge");
let outputs = 0;
const newFolder = () => join(folder, `out-${outputs++}`);

function openEngine(models: { name: string; path: string }[]) {
  return EngineCore.create({
    kernels: createWasmKernels({ threads: 1 }),
    models: models.map(folderModel),
    cacheBytes: 1 << 24,
    freshSeed: () => 1,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
}

const prompt = randomTokens(24, 11);
/** Logprobs of every token at every position. */
async function logprobs(engine: EngineCore, baseModel: string, adapterId?: string) {
  const vocab = 64;
  const { topkPrompt } = await engine.sample(
    sampleCall(prompt, { adapterId, baseModel, maxTokens: 0, topkPromptLogprobs: vocab }),
  );
  const rows = new Float32Array(prompt.length * vocab);
  topkPrompt!.tokens.forEach((token, cell) => {
    const row = Math.floor(cell / vocab);
    if (row > 0) rows[row * vocab + token] = topkPrompt!.logprobs[cell]!;
  });
  return rows;
}

function tensorsOf(path: string): Map<string, { dtype: string; shape: number[]; data: Float32Array }> {
  const all = new Map<string, { dtype: string; shape: number[]; data: Float32Array }>();
  for (const name of readdirSync(path).filter((file) => /^model.*\.safetensors$/.test(file))) {
    const file = new SafetensorsFile(join(path, name));
    for (const [tensor, { dtype }] of file.header.tensors) all.set(tensor, { dtype, ...file.read(tensor) });
    file.close();
  }
  return all;
}

/** The fixtures' adapters, with a B that is large enough to show. */
async function adapterFor(model: string, change: (adapter: Adapter) => Adapter = (adapter) => adapter) {
  const adapter = await readAdapter(fixture(`${model}/adapter`));
  const path = newFolder();
  await writeAdapter(path, change(adapter));
  return path;
}

describe("mergeAdapter", () => {
  it.each(goldenModels)("gives the logits of base and adapter (%s)", async (model) => {
    const adapter = await adapterFor(model);
    const merged = newFolder();
    await mergeAdapter(fixture(model), adapter, merged);
    const engine = await openEngine([
      { name: "base", path: fixture(model) },
      { name: "merged", path: merged },
    ]);
    const state = await readAdapterFolder(adapter);
    await engine.importAdapter("a", "base", state, { optimizer: false });
    const expected = await logprobs(engine, "base", "a");
    const actual = await logprobs(engine, "merged");
    const plain = await logprobs(engine, "base");
    await engine.close();
    // Half-precision weights are rounded once more after the sum.
    expect(largestDifference(actual, expected)).toBeLessThan(model === "qwen3" ? 1e-4 : 0.25);
    expect(largestDifference(plain, expected)).toBeGreaterThan(0.5);
  });

  it.each(goldenModels)(
    "changes each weight by scale * B A, to its dtype's precision, and no other (%s)",
    async (model) => {
      const adapterFolder = await adapterFor(model);
      const merged = newFolder();
      await mergeAdapter(fixture(model), adapterFolder, merged);
      const { tensors, alpha, rank } = await readAdapter(adapterFolder);
      const base = tensorsOf(fixture(model));
      const out = tensorsOf(merged);
      const tied = !base.has("lm_head.weight");
      expect([...out.keys()].sort()).toEqual([...base.keys(), ...(tied ? ["lm_head.weight"] : [])].sort());
      let changed = 0;
      for (const [name, { dtype, shape, data }] of out) {
        const before = base.get(name) ?? base.get("model.embed_tokens.weight")!;
        expect({ dtype, shape }).toEqual({ dtype: before.dtype, shape: before.shape });
        const key = `base_model.model.${name.replace(/\.weight$/, "")}`;
        const a = tensors[`${key}.lora_A.weight`];
        const b = tensors[`${key}.lora_B.weight`];
        if (!a || !b) {
          expect(data).toEqual(before.data);
          continue;
        }
        changed += 1;
        const [rows, columns] = shape as [number, number];
        const precision = { F32: 2 ** -23, F16: 2 ** -11, BF16: 2 ** -8 }[dtype]!;
        for (let i = 0; i < rows; i++) {
          for (let j = 0; j < columns; j++) {
            let sum = before.data[i * columns + j]!;
            for (let k = 0; k < rank; k++)
              sum += (alpha / rank) * b.data[i * rank + k]! * a.data[k * columns + j]!;
            const error = Math.abs(data[i * columns + j]! - sum);
            if (error > precision * Math.abs(sum) + 1e-6)
              throw new Error(`${name}[${i}, ${j}] is off by ${error}`);
          }
        }
      }
      expect(changed).toBe(15);
    },
  );

  it("keeps shards and their index, and copies what is no weight", async () => {
    const merged = newFolder();
    await mergeAdapter(fixture("llama"), await adapterFor("llama"), merged);
    expect(readdirSync(merged).sort()).toEqual([
      "README.md",
      ...readdirSync(fixture("llama")).filter((name) => name !== "adapter" && name !== "golden.safetensors"),
    ]);
    const index = (path: string) =>
      JSON.parse(readFileSync(join(path, "model.safetensors.index.json"), "utf8"));
    expect(index(merged)).toEqual(index(fixture("llama")));
    expect(readFileSync(join(merged, "config.json"), "utf8")).toBe(
      readFileSync(join(fixture("llama"), "config.json"), "utf8"),
    );
  });

  it("leaves out what describes the base alone, and says what it is itself", async () => {
    const base = newFolder();
    cpSync(fixture("llama"), base, { recursive: true });
    const left = ["README.md", "model_card.md", "training.json", "trainer_state.json", "all_results.json"];
    const kept = ["LICENSE", "NOTICE.txt", "tokenizer.json", "chat_template.jinja", "modeling_own.py"];
    for (const name of [...left, ...kept]) writeFileSync(join(base, name), "of the base");
    const adapter = await adapterFor("llama", (own) => ({ ...own, baseModel: "meta/little-llama" }));
    const merged = newFolder();
    await mergeAdapter(base, adapter, merged, { adapter: "tinker://run/weights/final" });
    const files = readdirSync(merged);
    expect(files).toEqual(expect.arrayContaining(kept));
    expect(files.filter((name) => left.includes(name))).toEqual(["README.md"]);
    const card = readFileSync(join(merged, "README.md"), "utf8");
    expect(card).toMatch(/^---\nbase_model: meta\/little-llama\n/);
    expect(card).toContain(`# ${basename(merged)}\n\nA merged model`);
    expect(card).toContain("- Base model: meta/little-llama\n- Adapter: tinker://run/weights/final\n");
    expect(card).toContain("- LoRA rank 3, alpha 32; 15 weight matrices changed\n");
  });

  it("unties the head only if the adapter changes it", async () => {
    const withoutHead = await adapterFor("qwen3", (adapter) => ({
      ...adapter,
      tensors: Object.fromEntries(
        Object.entries(adapter.tensors).filter(([name]) => !name.includes("lm_head")),
      ),
    }));
    const tied = newFolder();
    await mergeAdapter(fixture("qwen3"), withoutHead, tied);
    expect(tensorsOf(tied).has("lm_head.weight")).toBe(false);
    expect(JSON.parse(readFileSync(join(tied, "config.json"), "utf8")).tie_word_embeddings).toBe(true);
    const untied = newFolder();
    await mergeAdapter(fixture("qwen3"), await adapterFor("qwen3"), untied);
    expect(tensorsOf(untied).get("model.embed_tokens.weight")).toEqual(
      tensorsOf(fixture("qwen3")).get("model.embed_tokens.weight"),
    );
    expect(JSON.parse(readFileSync(join(untied, "config.json"), "utf8")).tie_word_embeddings).toBe(false);
  });

  it("scales as rsLoRA and alpha_pattern say", async () => {
    const change = async (otherSettings: Record<string, unknown>) => {
      const merged = newFolder();
      const path = await adapterFor("qwen3", (adapter) => ({ ...adapter, otherSettings }));
      await mergeAdapter(fixture("qwen3"), path, merged);
      const name = "model.layers.1.mlp.up_proj.weight";
      const [after, before] = [
        tensorsOf(merged).get(name)!.data,
        tensorsOf(fixture("qwen3")).get(name)!.data,
      ];
      return after.map((value, i) => value - before[i]!);
    };
    const usual = await change({});
    const rank = 3;
    expect(
      largestDifference(
        await change({ use_rslora: true }),
        usual.map((x) => x * Math.sqrt(rank)),
      ),
    ).toBeLessThan(1e-4);
    expect(
      largestDifference(
        await change({ alpha_pattern: { up_proj: 64 } }),
        usual.map((x) => x * 2),
      ),
    ).toBeLessThan(1e-4);
    expect(await change({ alpha_pattern: { "layers.0.mlp.up_proj": 64 } })).toEqual(usual);
  });

  it("knows the service's name of the head", async () => {
    const renamed = await adapterFor("llama", (adapter) => ({
      ...adapter,
      tensors: Object.fromEntries(
        Object.entries(adapter.tensors).map(([name, tensor]) => [
          name.replace("base_model.model.lm_head", "base_model.model.model.unembed_tokens"),
          tensor,
        ]),
      ),
    }));
    const [one, other] = [newFolder(), newFolder()];
    await mergeAdapter(fixture("llama"), renamed, one);
    await mergeAdapter(fixture("llama"), await adapterFor("llama"), other);
    expect(tensorsOf(one)).toEqual(tensorsOf(other));
  });

  it("reads an adapter of the head as PEFT saves it, with a copy of the base model's head", async () => {
    const saved = await adapterFor("llama", (adapter) => ({
      ...adapter,
      tensors: { ...adapter.tensors, ...only("base_model.model.lm_head.base_layer.weight", [64, 16]) },
    }));
    const [one, other] = [newFolder(), newFolder()];
    await mergeAdapter(fixture("llama"), saved, one);
    await mergeAdapter(fixture("llama"), await adapterFor("llama"), other);
    expect(tensorsOf(one)).toEqual(tensorsOf(other));
  });

  const only = (name: string, shape: number[]) => ({
    [name]: { shape, data: new Float32Array(shape.reduce((product, size) => product * size, 1)) },
  });
  const q = "base_model.model.model.layers.0.self_attn.q_proj";
  it.each<[string, Partial<Adapter>, RegExp]>([
    ["DoRA", { otherSettings: { use_dora: true } }, /use_dora \(true\) are not supported/],
    ["biases", { otherSettings: { bias: "all" } }, /bias \("all"\) are not supported/],
    [
      "trained token embeddings",
      { otherSettings: { trainable_token_indices: [1, 2] } },
      /trainable_token_indices \(\[1,2\]\) are not supported/,
    ],
    ["modules saved whole", { otherSettings: { modules_to_save: ["lm_head"] } }, /modules_to_save/],
    [
      "half a pair",
      { tensors: only(`${q}.lora_A.weight`, [3, 16]) },
      /only one of the two LoRA matrices of model\.layers\.0/,
    ],
    [
      "an embedding",
      { tensors: only("base_model.model.model.embed_tokens.lora_embedding_A", [3, 64]) },
      /not a LoRA matrix of a linear layer/,
    ],
    [
      "another model's modules",
      {
        tensors: {
          ...only("base_model.model.h.9.lora_A.weight", [3, 16]),
          ...only("base_model.model.h.9.lora_B.weight", [16, 3]),
        },
      },
      /no weight for 1 of the 1 modules of the adapter: h\.9\./,
    ],
    [
      "another shape",
      { tensors: { ...only(`${q}.lora_A.weight`, [3, 17]), ...only(`${q}.lora_B.weight`, [32, 3]) } },
      /does not fit model\.layers\.0\.self_attn\.q_proj\.weight of shape \[32,16\]: its lora_A has \[3,17\]/,
    ],
  ])("refuses %s, and leaves nothing", async (_name, change, sentence) => {
    const path = await adapterFor("qwen3", (adapter) => ({ ...adapter, ...change }));
    const merged = newFolder();
    const before = readdirSync(folder);
    await expect(mergeAdapter(fixture("qwen3"), path, merged)).rejects.toThrow(sentence);
    expect(readdirSync(folder)).toEqual(before);
  });

  it("refuses a folder that is in use, a quantized base and a folder without weights", async () => {
    const adapter = await adapterFor("qwen3");
    await expect(mergeAdapter(fixture("qwen3"), adapter, adapter)).rejects.toThrow("exists already");
    const file = join(adapter, "adapter_config.json");
    const below = join(file, "merged");
    await expect(mergeAdapter(fixture("qwen3"), adapter, below)).rejects.toThrow(
      `${below} could not be written: ENOTDIR`,
    );
    await expect(mergeAdapter(fixture("qwen3"), file, newFolder())).rejects.toThrow(
      `${file} is not a PEFT adapter`,
    );
    const quantized = newFolder();
    cpSync(fixture("qwen3"), quantized, { recursive: true });
    const config = { quantization_config: { quant_method: "gptq", bits: 4 } };
    writeFileSync(join(quantized, "config.json"), JSON.stringify(config));
    await expect(mergeAdapter(quantized, adapter, newFolder())).rejects.toThrow("is quantized (gptq)");
    const base = newFolder();
    mkdirSync(base);
    await expect(mergeAdapter(base, adapter, newFolder())).rejects.toThrow("it has no config.json");
    writeFileSync(join(base, "config.json"), "{}");
    await expect(mergeAdapter(base, adapter, newFolder())).rejects.toThrow("holds neither model.safetensors");
  });

  it("stops when its signal aborts", async () => {
    const merged = newFolder();
    const signal = AbortSignal.abort();
    await expect(
      mergeAdapter(fixture("qwen3"), await adapterFor("qwen3"), merged, { signal }),
    ).rejects.toThrow("The export was aborted");
    expect(existsSync(merged)).toBe(false);
  });

  it("works through a matrix that is larger than its buffer", async () => {
    const [rows, columns, rank] = [3000, 1024, 2];
    const base = newFolder();
    mkdirSync(base);
    writeFileSync(join(base, "config.json"), "{}");
    const ones = { shape: [rows, columns], data: new Float32Array(rows * columns).fill(1) };
    writeFileSync(
      join(base, "model.safetensors"),
      encodeSafetensors({ "x.weight": ones, "lm_head.weight": { shape: [1], data: new Float32Array(1) } }),
    );
    const adapter = newFolder();
    await writeAdapter(adapter, {
      baseModel: null,
      rank,
      alpha: 4,
      targetModules: ["x"],
      tensors: {
        "base_model.model.x.lora_A.weight": {
          shape: [rank, columns],
          data: Float32Array.from({ length: rank * columns }, (_, i) => (i < columns ? i : 1)),
        },
        "base_model.model.x.lora_B.weight": {
          shape: [rows, rank],
          data: Float32Array.from({ length: rows * rank }, (_, i) => (i % 2 === 0 ? 1 : Math.floor(i / 2))),
        },
      },
    });
    const merged = newFolder();
    await mergeAdapter(base, adapter, merged);
    const { data } = tensorsOf(merged).get("x.weight")!;
    for (const [row, column] of [
      [0, 0],
      [1, 5],
      [2047, 1023],
      [2048, 0],
      [2999, 1023],
    ] as const) {
      expect(data[row * columns + column]).toBe(1 + 2 * (column + row));
    }
  });

  // Needs a Python with torch, transformers and peft: TINKERTS_PYTHON=/path/to/python
  const python = process.env["TINKERTS_PYTHON"];
  if (!python)
    console.log(
      "test/checkpoints/merge.test.ts: transformers skipped, TINKERTS_PYTHON names no Python with peft",
    );
  it.runIf(python).each(goldenModels)("writes what transformers loads (%s)", async (model) => {
    const merged = newFolder();
    await mergeAdapter(fixture(model), fixture(`${model}/adapter`), merged);
    const script = fileURLToPath(new URL("../../scripts/golden/check_merge.py", import.meta.url));
    const run = spawnSync(python!, [script, fixture(model), fixture(`${model}/adapter`), merged], {
      encoding: "utf8",
    });
    expect(run.status, run.stdout + run.stderr).toBe(0);
    expect(run.stdout).toContain("largest difference");
  });
});

describe("readAdapter and writeAdapter", () => {
  it("keep tensors and settings, those we do not know as well", async () => {
    const adapter = await readAdapter(fixture("llama/adapter"));
    expect(adapter).toMatchObject({ rank: 3, alpha: 32, baseModel: "test/fixtures/engine/llama" });
    expect(adapter.targetModules).toContain("q_proj");
    const path = newFolder();
    await writeAdapter(path, adapter);
    expect(await readAdapter(path)).toEqual(adapter);
    const config = (of: string) => JSON.parse(readFileSync(join(of, "adapter_config.json"), "utf8"));
    expect(config(path)).toEqual(config(fixture("llama/adapter")));
    expect(readdirSync(path).sort()).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
  });

  it("write half precision on demand", async () => {
    const adapter = await readAdapter(fixture("qwen3/adapter"));
    const path = newFolder();
    await writeAdapter(path, adapter, { dtype: "BF16" });
    const file = new SafetensorsFile(join(path, "adapter_model.safetensors"));
    expect(new Set([...file.header.tensors.values()].map(({ dtype }) => dtype))).toEqual(new Set(["BF16"]));
    file.close();
    const name = Object.keys(adapter.tensors)[0]!;
    const [read, wrote] = [(await readAdapter(path)).tensors[name]!.data, adapter.tensors[name]!.data];
    for (const [i, value] of read.entries()) {
      expect(Math.abs(value - wrote[i]!)).toBeLessThanOrEqual(Math.abs(wrote[i]!) * 2 ** -8);
    }
  });

  it.each([
    [{ peft_type: "IA3", r: 1, lora_alpha: 1, target_modules: [] }, /peft_type must be "LORA", got "IA3"/],
    [{ peft_type: "LORA", r: 0, lora_alpha: 1, target_modules: [] }, /r must be a positive integer, got 0/],
    [{ peft_type: "LORA", r: 1, target_modules: [] }, /lora_alpha must be a number/],
    [
      { peft_type: "LORA", r: 1, lora_alpha: 1, target_modules: [3] },
      /target_modules must be a list of names/,
    ],
    [[], /must hold a JSON object/],
  ])("refuse a config that is wrong %#", async (config, sentence) => {
    const path = newFolder();
    mkdirSync(path);
    await expect(readAdapter(path)).rejects.toThrow(/is not a PEFT adapter: it has no adapter_config.json/);
    writeFileSync(join(path, "adapter_config.json"), JSON.stringify(config));
    await expect(readAdapter(path)).rejects.toThrow(sentence);
  });
});
