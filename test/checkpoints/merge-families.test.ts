import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { exportModel } from "../../src/checkpoints/export/export-model.node.js";
import { MergedWeights } from "../../src/checkpoints/merged-weights.node.js";
import { encodeHeader } from "../../src/checkpoints/safetensors.js";
import { SafetensorsFile } from "../../src/checkpoints/safetensors-file.node.js";
import { folderForTests } from "../support/folder-for-tests.js";
import {
  ALPHA,
  type MadeModules,
  type MadeTensor,
  quarters,
  RANK,
  writeMadeAdapter,
  writeModel,
} from "./made-models.js";

const folder = folderForTests("families");
let count = 0;
const newFolder = () => join(folder, `made-${count++}`);

function tensorsOf(path: string): Map<string, { shape: number[]; data: Float32Array }> {
  const all = new Map<string, { shape: number[]; data: Float32Array }>();
  for (const name of readdirSync(path).filter((file) => file.endsWith(".safetensors"))) {
    const file = new SafetensorsFile(join(path, name));
    for (const tensor of file.header.tensors.keys()) all.set(tensor, file.read(tensor));
    file.close();
  }
  return all;
}

/** Changes one value: module, expert, output and input of the product, and where it is added. */
type Place = (
  module: string,
  expert: number,
  output: number,
  input: number,
) => readonly [string, ...number[]];

/** The base with scale * B A of every module added where `place` says. */
function expectedSums(
  base: Readonly<Record<string, MadeTensor>>,
  adapter: Readonly<Record<string, MadeTensor>>,
  modules: MadeModules,
  place: Place,
): Map<string, { shape: number[]; data: Float32Array }> {
  const sums = new Map(
    Object.entries(base).map(([name, { shape, data }]) => [
      name,
      { shape: [...shape], data: Float32Array.from(data) },
    ]),
  );
  for (const [module, [inputs, outputs, experts = 1]] of Object.entries(modules)) {
    const a = adapter[`base_model.model.${module}.lora_A.weight`]!;
    const b = adapter[`base_model.model.${module}.lora_B.weight`]!;
    for (let expert = 0; expert < experts; expert++) {
      const ofA = a.shape[0] === experts && experts > 1 ? expert * RANK * inputs : 0;
      const ofB = b.shape[0] === experts && experts > 1 ? expert * RANK * outputs : 0;
      for (let output = 0; output < outputs; output++) {
        for (let input = 0; input < inputs; input++) {
          let delta = 0;
          for (let k = 0; k < RANK; k++)
            delta +=
              (b.data[ofB + output * RANK + k] as number) * (a.data[ofA + k * inputs + input] as number);
          const [name, ...index] = place(module, expert, output, input);
          const { shape, data } = sums.get(name)!;
          const at = index.reduce((sum, each, axis) => sum * shape[axis]! + each, 0);
          data[at]! += (ALPHA / RANK) * delta;
        }
      }
    }
  }
  return sums;
}

const [H, I, E] = [6, 4, 3];
const EXPERT_MODULES: MadeModules = {
  "model.layers.0.mlp.experts.w1": [H, I, E, "a"],
  "model.layers.0.mlp.experts.w2": [I, H, E],
  "model.layers.0.mlp.experts.w3": [H, I, E, "b"],
};
const leaf = (module: string) => module.slice(module.lastIndexOf(".") + 1);
const isUp = (module: string) => (leaf(module) === "w3" ? 1 : 0);

const LAYOUTS: readonly (readonly [
  string,
  { config: Record<string, unknown>; base: Record<string, MadeTensor>; modules: MadeModules; place: Place },
])[] = [
  [
    "separate experts",
    {
      config: { model_type: "qwen3_moe" },
      base: Object.fromEntries(
        [0, 1, 2].flatMap((expert) =>
          (["gate", "up", "down"] as const).map((part, i) => [
            `model.layers.0.mlp.experts.${expert}.${part}_proj.weight`,
            quarters(part === "down" ? [H, I] : [I, H], 7 * expert + i + 1),
          ]),
        ),
      ),
      modules: EXPERT_MODULES,
      place: (module, expert, output, input) => {
        const part = { w1: "gate", w2: "down", w3: "up" }[leaf(module)]!;
        return [`model.layers.0.mlp.experts.${expert}.${part}_proj.weight`, output, input];
      },
    },
  ],
  [
    "fused experts with interleaved gate and up (gpt-oss)",
    {
      config: { architectures: ["GptOssForCausalLM"] },
      base: {
        "model.layers.0.self_attn.q_proj.weight": quarters([8, H]),
        "model.layers.0.mlp.experts.gate_up_proj": quarters([E, H, 2 * I], 2),
        "model.layers.0.mlp.experts.down_proj": quarters([E, I, H], 3),
      },
      modules: { ...EXPERT_MODULES, "model.layers.0.attn.q_proj": [H, 8] },
      place: (module, expert, output, input) => {
        if (leaf(module) === "q_proj") return ["model.layers.0.self_attn.q_proj.weight", output, input];
        return leaf(module) === "w2"
          ? ["model.layers.0.mlp.experts.down_proj", expert, input, output]
          : ["model.layers.0.mlp.experts.gate_up_proj", expert, input, 2 * output + isUp(module)];
      },
    },
  ],
  [
    "fused experts, outputs as rows, square matrices (Qwen3.5)",
    {
      config: { model_type: "qwen3_5_moe" },
      base: {
        "model.language_model.layers.0.mlp.experts.gate_up_proj": quarters([E, 2 * H, H], 2),
        "model.language_model.layers.0.mlp.experts.down_proj": quarters([E, H, H], 3),
      },
      modules: {
        "model.layers.0.mlp.experts.w1": [H, H, E, "a"],
        "model.layers.0.mlp.experts.w2": [H, H, E],
        "model.layers.0.mlp.experts.w3": [H, H, E, "b"],
      },
      place: (module, expert, output, input) =>
        leaf(module) === "w2"
          ? ["model.language_model.layers.0.mlp.experts.down_proj", expert, output, input]
          : [
              "model.language_model.layers.0.mlp.experts.gate_up_proj",
              expert,
              isUp(module) * H + output,
              input,
            ],
    },
  ],
  [
    "parts of one matrix (Qwen3.5)",
    {
      config: { model_type: "qwen3_5" },
      base: { "model.language_model.layers.0.linear_attn.in_proj_qkv.weight": quarters([3 + 3 + 5, H]) },
      modules: {
        "model.layers.0.linear_attn.in_proj_v": [H, 5],
        "model.layers.0.linear_attn.in_proj_q": [H, 3],
        "model.layers.0.linear_attn.in_proj_k": [H, 3],
      },
      place: (module, _, output, input) => {
        const first = { in_proj_q: 0, in_proj_k: 3, in_proj_v: 6 }[leaf(module)]!;
        return ["model.language_model.layers.0.linear_attn.in_proj_qkv.weight", first + output, input];
      },
    },
  ],
];

describe("merges of experts and fused projections", () => {
  it.each(LAYOUTS)("add each change at its place: %s", async (_, { config, base, modules, place }) => {
    const names = Object.keys(base);
    const half = Math.ceil(names.length / 2);
    const shards = [names.slice(0, half), names.slice(half)]
      .filter((each) => each.length > 0)
      .map((each) => Object.fromEntries(each.map((name) => [name, base[name]!])));
    const baseModel = writeModel(newFolder(), config, shards);
    const adapter = newFolder();
    const matrices = writeMadeAdapter(adapter, modules);
    const output = newFolder();
    await exportModel({ to: "hf", adapter, baseModel, output });
    const merged = tensorsOf(output);
    const expected = expectedSums(base, matrices, modules, place);
    expect([...merged.keys()].sort()).toEqual([...expected.keys()].sort());
    for (const [name, tensor] of expected) expect(merged.get(name), name).toEqual(tensor);
    expect(merged).not.toEqual(tensorsOf(baseModel));
  });
});

describe("a tied head inside a vision wrapper", () => {
  it("becomes a tensor of its own, and both configs say so", async () => {
    const embedding = "model.language_model.embed_tokens.weight";
    const base = { [embedding]: quarters([8, H]), "model.visual.merger.weight": quarters([2, 2], 2) };
    const config = {
      model_type: "qwen3_5",
      tie_word_embeddings: false,
      text_config: { tie_word_embeddings: true },
    };
    const [baseModel, adapter, output] = [writeModel(newFolder(), config, [base]), newFolder(), newFolder()];
    const modules: MadeModules = { "model.unembed_tokens": [H, 8] };
    const matrices = writeMadeAdapter(adapter, modules);
    await exportModel({ to: "hf", adapter, baseModel, output });
    const withHead = { ...base, "lm_head.weight": base[embedding]! };
    const place: Place = (_module, _expert, row, column) => ["lm_head.weight", row, column];
    expect(tensorsOf(output)).toEqual(expectedSums(withHead, matrices, modules, place));
    expect(JSON.parse(readFileSync(join(output, "config.json"), "utf8"))).toEqual({
      ...config,
      text_config: { tie_word_embeddings: false },
    });
  });
});

const bytes = (length: number, valueAt: (index: number) => number) =>
  Uint8Array.from({ length }, (_, i) => valueAt(i));
const bfloat16 = (values: readonly number[]) => {
  const bits = new Uint16Array(Float32Array.from(values).buffer).filter((_, i) => i % 2 === 1);
  return new Uint8Array(bits.buffer);
};

describe("merges into packed weights", () => {
  /** A weight of 8 x 32 that has one value in each row. */
  const [rows, columns] = [8, 32];
  const module = "model.layers.0.mlp.down_proj";
  const name = `${module}.weight`;
  const packed = {
    fp8: {
      config: { quantization_config: { quant_method: "fp8", weight_block_size: [3, 16] } },
      tensors: {
        // 1.0 in 8 bits is 0x38; a block of three rows has one scale.
        [name]: { dtype: "F8_E4M3", shape: [rows, columns], data: bytes(rows * columns, () => 0x38) },
        [`${name}_scale_inv`]: { shape: [3, 2], data: Float32Array.of(1, 1, 2, 2, 3, 3) },
      },
      valueAt: (row: number) => 1 + Math.floor(row / 3),
      error: 1 / 16,
    },
    int4: {
      config: { quantization_config: { format: "pack-quantized", quant_method: "compressed-tensors" } },
      tensors: {
        [`${module}.weight_packed`]: { dtype: "I32", shape: [rows, 4], data: bytes(rows * 16, () => 0x77) },
        [`${module}.weight_scale`]: {
          dtype: "BF16",
          shape: [rows, 1],
          data: bfloat16([1, 2, 3, 4, 5, 6, 7, 8]),
        },
        [`${module}.weight_shape`]: {
          dtype: "I32",
          shape: [2],
          data: bytes(8, (i) => (i === 0 ? 8 : i === 4 ? 32 : 0)),
        },
      },
      valueAt: (row: number) => 7 * (1 + row),
      error: 1 / 7,
    },
  } as const;

  it.each(Object.entries(packed))("keep the format or write plain weights: %s", async (_, made) => {
    const { config, tensors, valueAt, error } = made;
    const baseModel = writeModel(newFolder(), config, [tensors as unknown as Record<string, MadeTensor>]);
    const adapter = newFolder();
    const matrices = writeMadeAdapter(adapter, { [module]: [columns, rows] });
    const plainBase = {
      [name]: {
        shape: [rows, columns],
        data: Float32Array.from({ length: rows * columns }, (_, i) => valueAt(Math.floor(i / columns))),
      },
    };
    const place: Place = (_module, _expert, output, input) => [name, output, input];
    const expected = expectedSums(plainBase, matrices, { [module]: [columns, rows] }, place).get(name)!;
    const [kept, plain] = [newFolder(), newFolder()];
    await exportModel({ to: "hf", adapter, baseModel, output: kept });
    await exportModel({ to: "hf", adapter, baseModel, output: plain, dequantize: true });
    const written = tensorsOf(plain);
    expect([...written.keys()]).toEqual([name]);
    for (const [i, value] of written.get(name)!.data.entries())
      expect(Math.abs(value - expected.data[i]!)).toBeLessThanOrEqual(2 ** -8 * Math.abs(expected.data[i]!));
    const readConfig = (path: string) => JSON.parse(readFileSync(join(path, "config.json"), "utf8"));
    expect(readConfig(plain)).toEqual({});
    expect(readConfig(kept)).toEqual(config);
    const again = await MergedWeights.open(kept, undefined, { dequantize: true });
    const values = again.tensors[0]!.readRows(0, rows);
    const inRows = again.tensors[0]!.readRows(4, 2);
    again.close();
    const largest = Math.max(...expected.data.map(Math.abs));
    for (const [i, value] of values.entries())
      expect(Math.abs(value - expected.data[i]!)).toBeLessThan(error * largest);
    expect([...inRows]).toEqual([...values.subarray(4 * columns, 6 * columns)]);
  });

  it("are the same, read as a whole and in parts", async () => {
    const [many, wide] = [1100, 2048];
    const key = `${module}.weight`;
    const baseModel = writeModel(newFolder(), packed.int4.config, [
      {
        [`${key}_packed`]: {
          dtype: "I32",
          shape: [many, wide / 8],
          data: bytes((many * wide) / 2, (i) => i % 251),
        },
        [`${key}_scale`]: {
          dtype: "BF16",
          shape: [many, wide / 32],
          data: bfloat16(Array.from({ length: (many * wide) / 32 }, (_, i) => 1 + (i % 7))),
        },
        [`${key}_shape`]: { dtype: "I32", shape: [2], data: bytes(8, () => 0) },
      },
    ]);
    const adapter = newFolder();
    writeMadeAdapter(adapter, { [module]: [wide, many] });
    const merged = await MergedWeights.open(baseModel, adapter);
    for (const tensor of merged.tensors) {
      const whole = tensor.readBytes(0, tensor.rowCount);
      const rowBytes = whole.length / tensor.rowCount;
      for (let row = 0; row < tensor.rowCount; row += 173) {
        const count = Math.min(173, tensor.rowCount - row);
        const part = whole.subarray(row * rowBytes, (row + count) * rowBytes);
        expect(Buffer.from(tensor.readBytes(row, count)).equals(part)).toBe(true);
      }
    }
    merged.close();
  });

  it("are refused where a tensor of the format is missing or of another size", async () => {
    const { config, tensors } = packed.fp8;
    const adapter = newFolder();
    writeMadeAdapter(adapter, { [module]: [columns, rows] });
    const { [name]: weight, [`${name}_scale_inv`]: scales } = tensors as unknown as Record<
      string,
      MadeTensor
    >;
    const merge = (baseModel: string) => exportModel({ to: "hf", adapter, baseModel, output: newFolder() });
    const lone = writeModel(newFolder(), config, [{ [name]: weight! }]);
    await expect(merge(lone)).rejects.toThrow(`has ${name}, but not ${name}_scale_inv, which belongs to it`);
    const short = { shape: [2, 2], data: (scales!.data as Float32Array).subarray(0, 4) };
    const wrong = writeModel(newFolder(), config, [{ [name]: weight!, [`${name}_scale_inv`]: short }]);
    await expect(merge(wrong)).rejects.toThrow(
      /down_proj\.weight \[8,32\] and .*_scale_inv \[2,2\] do not belong together/,
    );
  });
});

describe("broken input", () => {
  const config = { model_type: "qwen3" };
  const tensors = {
    "model.embed_tokens.weight": quarters([8, H]),
    "model.layers.0.self_attn.q_proj.weight": quarters([8, H], 2),
    "lm_head.weight": quarters([8, H], 3),
  };
  const { "lm_head.weight": head, ...rest } = tensors;
  const base = () => writeModel(newFolder(), config, [rest, { "lm_head.weight": head }]);
  const adapterFor = (modules: MadeModules) => {
    const path = newFolder();
    writeMadeAdapter(path, modules);
    return path;
  };
  const good: MadeModules = { "model.layers.0.self_attn.q_proj": [H, 8] };
  const lastShard = "model-00002-of-00002.safetensors";

  it.each<[string, () => { baseModel: string; adapter: string }, RegExp]>([
    [
      "a shard that is cut short",
      () => {
        const baseModel = base();
        truncateSync(join(baseModel, lastShard), 150);
        return { baseModel, adapter: adapterFor(good) };
      },
      /00002-of-00002\.safetensors: the file is cut short: tensor lm_head\.weight ends at byte \d+, the file has 150$/,
    ],
    [
      "a shard that is missing",
      () => {
        const baseModel = base();
        const index = { weight_map: { "lm_head.weight": "model-00003-of-00003.safetensors" } };
        writeFileSync(join(baseModel, "model.safetensors.index.json"), JSON.stringify(index));
        return { baseModel, adapter: adapterFor(good) };
      },
      /is not a whole model folder: it has no model-00003-of-00003\.safetensors/,
    ],
    [
      "a tensor that only the index knows",
      () => {
        const baseModel = base();
        const index = { weight_map: { "model.norm.weight": lastShard } };
        writeFileSync(join(baseModel, "model.safetensors.index.json"), JSON.stringify(index));
        return { baseModel, adapter: adapterFor(good) };
      },
      /has no tensor model\.norm\.weight, which its model\.safetensors\.index\.json names/,
    ],
    [
      "an adapter of another model",
      () => ({ baseModel: base(), adapter: adapterFor({ "model.layers.5.self_attn.q_proj": [H, 8] }) }),
      /no weight for 1 of the 1 modules of the adapter: model\.layers\.5\.self_attn\.q_proj\.$/,
    ],
    [
      "an adapter of another size",
      () => ({ baseModel: base(), adapter: adapterFor({ "model.layers.0.self_attn.q_proj": [H + 1, 8] }) }),
      /does not fit model\.layers\.0\.self_attn\.q_proj\.weight of shape \[8,6\]: its lora_A has \[2,7\]/,
    ],
    [
      "experts for a model without",
      () => ({ baseModel: base(), adapter: adapterFor(EXPERT_MODULES) }),
      /no weight for 3 of the 3 modules of the adapter: model\.layers\.0\.mlp\.experts\.w1/,
    ],
    [
      "experts of two counts",
      () => {
        const adapter = adapterFor({ "model.layers.0.mlp.experts.w1": [H, I, E, "a"] });
        return {
          baseModel: base(),
          adapter: rewritten(adapter, (text) => text.replace("[1,2,6]", "[2,1,6]")),
        };
      },
      /must be \[experts, rank, inputs\] and \[experts, outputs, rank\], of as many experts or one for all; got \[2,1,6\] and \[3,4,2\]/,
    ],
    [
      "an adapter without matrices",
      () => ({ baseModel: base(), adapter: adapterFor({}) }),
      /adapter_model\.safetensors holds no LoRA matrices/,
    ],
    [
      "a part of a matrix without those before it",
      () => ({
        baseModel: writeModel(newFolder(), { model_type: "qwen3_5" }, [
          { "model.layers.0.linear_attn.in_proj_qkv.weight": quarters([11, H]) },
        ]),
        adapter: adapterFor({ "model.layers.0.linear_attn.in_proj_v": [H, 5] }),
      }),
      /changes model\.layers\.0\.linear_attn\.in_proj_v but not .*in_proj_q, which comes before it/,
    ],
  ])("is refused in one sentence, and nothing is left: %s", async (_, make, sentence) => {
    const { baseModel, adapter } = make();
    const before = readdirSync(folder).sort();
    for (const to of ["hf", "vllm"] as const) {
      const output = join(folder, "refused");
      await expect(exportModel({ to, adapter, baseModel, output })).rejects.toThrow(sentence);
      expect(readdirSync(folder).sort()).toEqual(before);
    }
  });

  it("is a disk without room: said before anything is written", async () => {
    // A file of zeros that takes no room itself, and as much as the disk has.
    const { bavail, bsize } = statfsSync(folder);
    const rows = Math.ceil((bavail * bsize) / (4 * 2 ** 20)) + 2;
    const { header } = encodeHeader([{ name: "x.weight", dtype: "F32", shape: [rows, 2 ** 20] }], {});
    const baseModel = writeModel(newFolder(), config, [{}]);
    const file = join(baseModel, "model.safetensors");
    writeFileSync(file, header);
    truncateSync(file, header.length + rows * 4 * 2 ** 20);
    const before = readdirSync(folder).length;
    const adapter = newFolder();
    writeMadeAdapter(adapter, { x: [2 ** 20, rows] });
    const output = join(folder, "too-large");
    await expect(exportModel({ to: "hf", adapter, baseModel, output })).rejects.toThrow(
      /too-large needs \d+\.\d GB, but its disk has \d+\.\d GB left; free some space or choose another disk/,
    );
    rmSync(adapter, { recursive: true });
    expect(readdirSync(folder).filter((name) => !name.startsWith(".")).length).toBe(before);
    expect(existsSync(output)).toBe(false);
  });

  it("is a target that exists, and it stays as it is", async () => {
    const output = newFolder();
    mkdirSync(output);
    writeFileSync(join(output, "mine.txt"), "mine");
    const inputs = { adapter: adapterFor(good), baseModel: base(), output };
    await expect(exportModel({ to: "hf", ...inputs })).rejects.toThrow(`output: ${output} exists already`);
    expect(readdirSync(output)).toEqual(["mine.txt"]);
  });

  it("is stopped in the middle, and continued with the finished shards", async () => {
    const stop = new AbortController();
    const output = newFolder();
    const inputs = { to: "hf", adapter: adapterFor(good), baseModel: base(), output } as const;
    let reports = 0;
    const onProgress = () => {
      reports += 1;
      if (reports === 2) stop.abort();
    };
    await expect(exportModel({ ...inputs, signal: stop.signal, onProgress })).rejects.toThrow(
      "The export was aborted",
    );
    expect(existsSync(output)).toBe(false);
    const seen: number[] = [];
    await exportModel({ ...inputs, onProgress: ({ bytes: done }) => void seen.push(done) });
    expect(seen.at(-1)).toBe(3 * 8 * H * 4);
    expect([...tensorsOf(output).keys()].sort()).toEqual(Object.keys(tensors).sort());
    expect(readdirSync(folder).filter((each) => each.endsWith(".export"))).toEqual([]);
  });

  it("is a head for vLLM, unless it is to be left out", async () => {
    const adapter = adapterFor({ ...good, "model.unembed_tokens": [H, 8] });
    const inputs = { to: "vllm", adapter, baseModel: base() } as const;
    await expect(exportModel({ ...inputs, output: newFolder() })).rejects.toThrow(
      /changes the output head, which vLLM does not load: merge it \(--to hf\), .*--head drop/,
    );
    const [dropped, kept] = [newFolder(), newFolder()];
    const { commands } = await exportModel({ ...inputs, output: dropped, head: "drop" });
    expect(commands[0]).toContain("--max-lora-rank 8 ");
    await exportModel({ ...inputs, output: kept, head: "keep" });
    const namesOf = (path: string) =>
      [...tensorsOf(path).keys()].filter((each) => each.endsWith("lora_A.weight"));
    const q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    expect(namesOf(dropped)).toEqual([q]);
    expect(namesOf(kept).sort()).toEqual(["base_model.model.lm_head.lora_A.weight", q]);
  });

  function rewritten(adapter: string, change: (header: string) => string): string {
    const path = join(adapter, "adapter_model.safetensors");
    const content = readFileSync(path);
    const length = Number(content.readBigUInt64LE(0));
    const header = change(content.subarray(8, 8 + length).toString()).padEnd(length);
    writeFileSync(
      path,
      Buffer.concat([content.subarray(0, 8), Buffer.from(header), content.subarray(8 + length)]),
    );
    return adapter;
  }
});
