import {
  cpSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type ExportOptions, exportModel } from "../../src/checkpoints/index.js";
import { encodeHeader } from "../../src/checkpoints/safetensors.js";
import { defaultModel } from "../../src/local/default-model.js";
import { fixture } from "../engine/golden.js";
import { folderForTests } from "../support/folder-for-tests.js";

const folder = folderForTests("gguf");
let folders = 0;
const newFolder = () => {
  const path = join(folder, `f${folders++}`);
  mkdirSync(path);
  return path;
};
/** A copy of the package's model, with other settings in its `config.json`, if any. */
function nano(change: Record<string, unknown> = {}): string {
  const path = newFolder();
  cpSync(defaultModel.path, path, { recursive: true });
  const config = JSON.parse(readFileSync(join(path, "config.json"), "utf8")) as object;
  writeFileSync(join(path, "config.json"), JSON.stringify({ ...config, ...change }));
  return path;
}

const changeFile = (path: string, change: (json: Record<string, never>) => unknown) => {
  const json = JSON.parse(readFileSync(path, "utf8")) as Record<string, never>;
  writeFileSync(path, JSON.stringify(change(json)));
};

describe("an export to GGUF", () => {
  it("is the same file when it was interrupted, and what was written is not written again", async () => {
    const target = newFolder();
    const options = { to: "gguf", baseModel: defaultModel.path, type: "f32" } as const;
    const whole = join(target, "whole.gguf");
    await exportModel({ ...options, output: whole });
    const stopped = join(target, "stopped.gguf");
    const controller = new AbortController();
    const stop = ({ bytes, totalBytes }: { bytes: number; totalBytes: number | undefined }) => {
      if (bytes > 0.8 * totalBytes!) controller.abort();
    };
    await expect(
      exportModel({ ...options, output: stopped, signal: controller.signal, onProgress: stop }),
    ).rejects.toThrow(/abort/i);
    expect(readdirSync(target).sort()).toEqual([".stopped.gguf.export", "whole.gguf"]);
    // A mark in the part that is finished.
    const file = openSync(join(target, ".stopped.gguf.export", "model.gguf"), "r+");
    const mark = readFileSync(whole).length >> 2;
    writeSync(file, Uint8Array.of(77, 77, 77, 77), 0, 4, mark);
    await exportModel({ ...options, output: stopped });
    const bytes = readFileSync(stopped);
    expect([...bytes.subarray(mark, mark + 4)]).toEqual([77, 77, 77, 77]);
    const expected = readFileSync(whole);
    expected.set([77, 77, 77, 77], mark);
    expect(bytes.equals(expected)).toBe(true);
    expect(readdirSync(target).sort()).toEqual(["stopped.gguf", "whole.gguf"]);
  });

  it("begins again where the earlier attempt had other settings", async () => {
    const target = newFolder();
    const output = join(target, "model.gguf");
    const controller = new AbortController();
    const first = exportModel({
      ...{ to: "gguf", baseModel: defaultModel.path, type: "f32", output, signal: controller.signal },
      onProgress: ({ bytes, totalBytes }) => {
        if (bytes > 0.8 * totalBytes!) controller.abort();
      },
    });
    await expect(first).rejects.toThrow(/abort/i);
    await exportModel({ to: "gguf", baseModel: defaultModel.path, type: "f16", output });
    const plain = join(target, "plain.gguf");
    await exportModel({ to: "gguf", baseModel: defaultModel.path, type: "f16", output: plain });
    expect(readFileSync(output).equals(readFileSync(plain))).toBe(true);
  });

  const refusals: [string, () => Partial<ExportOptions>, RegExp][] = [
    [
      "a model of another type",
      () => ({ baseModel: nano({ model_type: "gpt2" }) }),
      /is a model of type gpt2; GGUF files can be made of llama, mistral/,
    ],
    [
      "another activation",
      () => ({ baseModel: nano({ hidden_act: "gelu" }) }),
      /hidden_act gelu has no form in GGUF/,
    ],
    [
      "a kind of rope that llama.cpp does not have",
      () => ({ baseModel: nano({ rope_scaling: { rope_type: "longrope", factor: 2 } }) }),
      /a rope of type longrope has no form in GGUF/,
    ],
    [
      "a weight of another shape",
      () => ({ baseModel: nano({ intermediate_size: 700 }) }),
      /mlp.gate_proj.weight has the shape \[704,256\], but by config.json it should be \[700,256\]/,
    ],
    [
      "a missing weight",
      () => ({ baseModel: nano({ num_hidden_layers: 4 }) }),
      /has no tensor model.layers.3.input_layernorm.weight/,
    ],
    [
      "a weight that has no place",
      () => ({ baseModel: nano({ num_hidden_layers: 2 }) }),
      /GGUF files of this architecture have no tensor for model.layers.2/,
    ],
    [
      "a file that is cut short",
      () => {
        const path = nano();
        truncateSync(join(path, "model.safetensors"), 1_000_000);
        return { baseModel: path };
      },
      /the file is cut short/,
    ],
    ["a model without a tokenizer", () => ({ baseModel: fixture("qwen3") }), /has no tokenizer.json/],
    [
      "a tokenizer that splits text in an unknown way",
      () => {
        const path = nano();
        changeFile(join(path, "tokenizer.json"), (json) => ({
          ...json,
          pre_tokenizer: { type: "Split", pattern: { Regex: "x+" } },
        }));
        return { baseModel: path };
      },
      /splits text in a way that llama.cpp has no name for: \["x\+"\]/,
    ],
    [
      "more tokens in the tokenizer than in the model",
      () => {
        const path = nano();
        changeFile(join(path, "tokenizer.json"), (json) => ({
          ...json,
          added_tokens: [{ id: 600, content: "<late>", special: true }],
        }));
        return { baseModel: path };
      },
      /token "<late>" has the id 600, but the model has 512 tokens/,
    ],
    [
      "an adapter of another model",
      () => ({ adapter: fixture("llama/adapter") }),
      /The base model has no weight for|The adapter does not fit/,
    ],
    [
      "a quantized adapter",
      () => ({
        to: "llama.cpp-lora",
        adapter: fixture("qwen3/adapter"),
        baseModel: fixture("qwen3"),
        type: "q4_0",
      }),
      /an adapter is stored as f32, f16 or bf16, not q4_0/,
    ],
    [
      "an adapter of a tied head, alone",
      () => ({ to: "llama.cpp-lora", adapter: fixture("qwen3/adapter"), baseModel: fixture("qwen3") }),
      /shares with its embedding: llama.cpp cannot change it alone/,
    ],
    ["no adapter where one is needed", () => ({ to: "llama.cpp-lora" }), /made from an adapter; give one/],
    ["an adapter that is not there", () => ({ adapter: join(folder, "nosuch") }), /nosuch is not a folder/],
    [
      "an option of another target",
      () => ({ system: "Be kind." }),
      /system is an option of ollama, not of gguf/,
    ],
    [
      "a checkpoint without a server",
      () => ({ adapter: "tinker://run:train:0/sampler_weights/final" }),
      /needs a RestClient to be downloaded with/,
    ],
  ];
  it.each(refusals)("refuses %s, and writes nothing", async (_, change, message) => {
    const target = newFolder();
    const options = {
      to: "gguf",
      baseModel: defaultModel.path,
      output: join(target, "out"),
      ...change(),
    } as const;
    await expect(exportModel(options)).rejects.toThrow(message);
    expect(readdirSync(target)).toEqual([]);
  });

  it("refuses a name that is taken, and leaves what has it", async () => {
    const output = join(newFolder(), "model.gguf");
    writeFileSync(output, "mine");
    await expect(exportModel({ to: "gguf", baseModel: defaultModel.path, output })).rejects.toThrow(
      /model.gguf exists already; choose another name or remove it/,
    );
    expect(readFileSync(output, "utf8")).toBe("mine");
  });

  it("refuses a model that the disk has no room for", async () => {
    const path = nano({ intermediate_size: 1_000_000_000 });
    // Terabytes of zeros, of which the disk holds none.
    const shapes: [string, number[]][] = [
      ["model.embed_tokens.weight", [512, 256]],
      ["model.norm.weight", [256]],
      ...[0, 1, 2].flatMap((layer): [string, number[]][] =>
        Object.entries({
          ...{ "input_layernorm.weight": [256], "post_attention_layernorm.weight": [256] },
          ...{ "self_attn.q_norm.weight": [32], "self_attn.k_norm.weight": [32] },
          ...{ "self_attn.q_proj.weight": [256, 256], "self_attn.o_proj.weight": [256, 256] },
          ...{ "self_attn.k_proj.weight": [128, 256], "self_attn.v_proj.weight": [128, 256] },
          ...{ "mlp.gate_proj.weight": [1e9, 256], "mlp.up_proj.weight": [1e9, 256] },
          "mlp.down_proj.weight": [256, 1e9],
        }).map(([name, shape]) => [`model.layers.${layer}.${name}`, shape]),
      ),
    ];
    const tensors = shapes.map(([name, shape]) => ({ name, shape, dtype: "BF16" as const }));
    const { header, dataBytes } = encodeHeader(tensors, {});
    const weights = join(path, "model.safetensors");
    writeFileSync(weights, header);
    truncateSync(weights, header.length + dataBytes);
    const target = newFolder();
    const output = join(target, "large.gguf");
    await expect(exportModel({ to: "gguf", baseModel: path, output, type: "f32" })).rejects.toThrow(
      /large.gguf needs 9216.0 GB, but its disk has .* GB left; free some space or choose another disk/,
    );
    expect(readdirSync(target)).toEqual([]);
  });
});

describe("an export to Ollama", () => {
  it("is the model's file and a Modelfile with template, system prompt, stops and settings", async () => {
    const base = nano();
    changeFile(join(base, "generation_config.json"), (json) => ({ ...json, temperature: 0.6, top_k: 20 }));
    const folder = join(newFolder(), "my models");
    mkdirSync(folder);
    const output = join(folder, "Adder");
    const { commands } = await exportModel({ to: "ollama", baseModel: base, output, system: "Be brief." });
    expect(readdirSync(output).sort()).toEqual(["Modelfile", "model.gguf"]);
    const modelfile = readFileSync(join(output, "Modelfile"), "utf8");
    expect(modelfile).toMatch(/^FROM \.\/model\.gguf\nTEMPLATE """\{\{ range \.Messages \}\}/);
    expect(modelfile.split("\n").slice(-6)).toEqual([
      'SYSTEM """Be brief."""',
      'PARAMETER stop "<|im_end|>"',
      'PARAMETER stop "<|endoftext|>"',
      "PARAMETER temperature 0.6",
      "PARAMETER top_k 20",
      "",
    ]);
    expect(commands).toEqual([`ollama create adder -f '${join(output, "Modelfile")}'`, "ollama run adder"]);
  });
});
