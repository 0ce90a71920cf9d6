/** GGUF files, judged by llama.cpp itself, PyPI's `gguf`, and transformers. */
import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { exportModel } from "../../src/checkpoints/export/export-model.node.js";
import { GGUF_TYPES } from "../../src/checkpoints/export/options.js";
import { decodeSafetensors } from "../../src/checkpoints/safetensors.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel, startLocalBackend } from "../../src/local/index.js";
import { writeModel } from "../checkpoints/made-models.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { hasPythonModule, python, pythonFile } from "./judge.js";
import { SEED } from "./judged.js";
import { ggmlLibrary, hasLlamaCpp, runLlama } from "./llama-cpp.js";
import { writeReport } from "./report.js";

const FILE = "gguf.test.ts";
const folder = folderForTests("gguf");
const fixtures = join(import.meta.dirname, "../fixtures/tokenizers");
const at = (...parts: string[]) => join(folder, ...parts);
/** What float32 arithmetic in another order may change. */
const CLOSE = 1e-3;

if (!hasLlamaCpp) console.log(`${FILE} is skipped: npm run conformance installs llama.cpp.`);
const hasGguf = hasPythonModule("gguf", FILE);
const hasModels = hasPythonModule("transformers", FILE) && hasPythonModule("torch", FILE);

const ARCHITECTURES = [
  ...["llama", "mistral", "qwen2", "qwen3", "qwen3_moe"],
  ...["gpt_oss", "qwen3_5", "qwen3_5_moe"],
];

function largestDifference(a: readonly (readonly number[])[], b: readonly (readonly number[])[]): number {
  return Math.max(...a.map((row, i) => Math.max(...row.map((value, j) => Math.abs(value - b[i]![j]!)))));
}

const report = {
  seed: SEED,
  models: [] as { name: string; difference: number }[],
  adapters: [] as { name: string; difference: number }[],
  nano: [] as number[],
  tensors: { gguf: 0, "llama.cpp": 0 },
  tokenizers: [] as { name: string; texts: number }[],
};
afterAll(() => writeReport("gguf", report));

const likeliest = (rows: readonly (readonly number[])[]) => rows.map((row) => row.indexOf(Math.max(...row)));

describe.skipIf(!hasLlamaCpp || !hasModels)("a GGUF file in llama.cpp", () => {
  let tokens: number[];
  const unknown: string[] = [];

  beforeAll(() => {
    const out = execFileSync(
      python,
      [pythonFile("gguf_models.py"), folder, defaultModel.path, String(SEED)],
      { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], timeout: 220_000 },
    );
    const said = JSON.parse(out.trim().split("\n").at(-1)!) as { unknown: string[]; tokens: number[] };
    tokens = said.tokens;
    unknown.push(...said.unknown);
  });

  it.for(ARCHITECTURES)("computes what transformers computes (%s)", async (name, { skip }) => {
    if (unknown.includes(name)) {
      console.log(`${FILE}: ${name} is skipped, this transformers does not know it.`);
      skip();
    }
    const file = at(`${name}.gguf`);
    await exportModel({ to: "gguf", baseModel: at(name), output: file, type: "f32" });
    const { data, shape } = decodeSafetensors(readFileSync(at(name, "golden.st"))).tensors["logprobs"]!;
    const golden = Array.from({ length: shape[0]! }, (_, row) => [
      ...data.subarray(row * shape[1]!, (row + 1) * shape[1]!),
    ]);
    const [result] = runLlama([{ file, tokens }]);
    const difference = largestDifference(result!.logprobs, golden);
    expect(difference).toBeLessThan(CLOSE);
    expect(likeliest(result!.logprobs)).toEqual(likeliest(golden));
    report.models.push({ name, difference });
  });

  it.for(ARCHITECTURES)("takes an adapter as merged, and beside it (%s)", async (name, { skip }) => {
    if (unknown.includes(name)) skip();
    const [base, adapter] = [at(name), at(name, "adapter")];
    const [merged, lora] = [at(`${name}-merged.gguf`), at(`${name}-lora.gguf`)];
    await exportModel({ to: "gguf", baseModel: base, adapter, output: merged, type: "f32" });
    await exportModel({ to: "llama.cpp-lora", baseModel: base, adapter, output: lora, type: "f32" });
    const plain = at(`${name}.gguf`);
    const [alone, inside, beside] = runLlama([
      { file: plain, tokens },
      { file: merged, tokens },
      { file: plain, adapter: lora, tokens },
    ]);
    const difference = largestDifference(inside!.logprobs, beside!.logprobs);
    expect(difference).toBeLessThan(CLOSE);
    expect(likeliest(inside!.logprobs)).toEqual(likeliest(beside!.logprobs));
    expect(largestDifference(inside!.logprobs, alone!.logprobs)).toBeGreaterThan(1);
    report.adapters.push({ name, difference });
  });
});

describe.skipIf(!hasLlamaCpp)("a trained nano in llama.cpp", () => {
  it("answers as the built-in backend does, merged and quantized, with a head that was tied", async () => {
    const backend = await startLocalBackend({ listen: false, dataDir: at("data") });
    const service = new ServiceClient(backend);
    const training = await service.createLoraTrainingClient({
      baseModel: defaultModel.name,
      rank: 8,
      seed: 1,
    });
    const tokenizer = await training.getTokenizer();
    const taught = [
      ...tokenizer.encode("The answer to everything is forty-two, and the rest is commentary."),
    ];
    const datum = {
      modelInput: taught.slice(0, -1),
      lossFnInputs: { targetTokens: taught.slice(1), weights: taught.slice(1).map(() => 1) },
    };
    for (let step = 0; step < 12; step += 1) {
      await training.forwardBackward([datum], "cross_entropy");
      await training.optimStep({ learningRate: 5e-3 });
    }
    const { path } = await training.saveWeightsForSampler("final");
    const sampler = await service.createSamplingClient({ modelPath: path });
    const expected = (await sampler.computeLogprobs(taught)).slice(1) as number[];
    const source = service.createRestClient();
    const { fetch } = backend;
    const files = await Promise.all(
      (["f32", "f16", "q8_0"] as const).map(async (type) => {
        const output = at(`nano-${type}.gguf`);
        const from = { adapter: path, source, fetch, baseModel: defaultModel.path };
        await exportModel({ to: "gguf", ...from, output, type });
        return output;
      }),
    );
    await service.close();
    await backend.close();
    const texts = ["The answer to", " everything   is\n\nforty-two!", "naïve façade 12345 <|im_start|>user"];
    const results = runLlama(files.map((file) => ({ file, tokens: taught, texts })));
    const differences = results.map(({ logprobs }) =>
      Math.max(...expected.map((logprob, i) => Math.abs(logprob - logprobs[i]![taught[i + 1]!]!))),
    );
    report.nano = differences;
    expect(differences[0]).toBeLessThan(CLOSE);
    // llama.cpp rounds activations to the precision of the weights before it multiplies.
    expect(differences[1]).toBeLessThan(0.02);
    expect(differences[2]).toBeLessThan(0.5);
    expect(Math.min(...expected)).toBeGreaterThan(-1);
    expect(results[0]!.encoded).toEqual(texts.map((text) => [...tokenizer.encode(text)]));
  });
});

describe.skipIf(!hasGguf)("a GGUF file read by PyPI's gguf", () => {
  interface Read {
    readonly shapes: Readonly<Record<string, readonly number[]>>;
    readonly metadata: Readonly<Record<string, unknown>>;
    readonly kinds: Readonly<Record<string, number>>;
    readonly compared: Readonly<Record<"gguf" | "llama.cpp", number>>;
    readonly differing: readonly string[];
    readonly error: number;
  }

  it("has values quantized bit for bit as its reference and llama.cpp quantize them", async () => {
    const files = await Promise.all(
      GGUF_TYPES.map(async (type) => {
        const output = at(`read-${type}.gguf`);
        await exportModel({ to: "gguf", baseModel: defaultModel.path, output, type });
        return output;
      }),
    );
    const out = execFileSync(python, [pythonFile("gguf_files.py"), ggmlLibrary, files[0]!, ...files], {
      encoding: "utf8",
      timeout: 220_000,
    });
    const read = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Read);
    expect(read.map(({ differing }) => differing)).toEqual(GGUF_TYPES.map(() => []));
    for (const { compared } of read) {
      report.tensors.gguf += compared.gguf;
      report.tensors["llama.cpp"] += compared["llama.cpp"];
    }
    const errors = Object.fromEntries(read.map(({ error }, index) => [GGUF_TYPES[index]!, error]));
    expect(errors["f32"]).toBe(0);
    for (const [type, most] of [
      ["f16", 1e-3],
      ["bf16", 1e-2],
      ["q8_0", 1e-2],
      ["q6_K", 0.03],
      ["q4_K_M", 0.1],
      ["q4_0", 0.13],
    ] as const) {
      expect(errors[type], type).toBeLessThan(most);
    }
    const kinds = read.map((each) => each.kinds);
    expect(kinds[GGUF_TYPES.indexOf("q4_K_M")]).toMatchObject({
      Q4_K: expect.any(Number),
      Q6_K: expect.any(Number),
    });
    expect(kinds[GGUF_TYPES.indexOf("q4_0")]).toMatchObject({ Q4_0: expect.any(Number) });
    expect(read[0]!.metadata).toMatchObject({
      "general.architecture": "qwen3",
      "qwen3.block_count": 3,
      "qwen3.embedding_length": 256,
      "tokenizer.ggml.model": "gpt2",
      "tokenizer.ggml.pre": "qwen2",
      "tokenizer.ggml.tokens": 512,
      "tokenizer.ggml.eos_token_id": 511,
    });
    // The format has the longest steps last.
    expect(read[0]!.shapes["blk.0.ffn_down.weight"]).toEqual([704, 256]);
  });
});

describe.skipIf(!hasLlamaCpp)("a tokenizer in llama.cpp", () => {
  it.each(["qwen3", "gpt2", "yi"])("splits texts as the tokenizer's own library does (%s)", async (name) => {
    const unpacked = (file: string) => gunzipSync(readFileSync(join(fixtures, name, file))).toString();
    const json = unpacked("tokenizer.json.gz");
    const { model, added_tokens: added = [] } = JSON.parse(json) as {
      model: { vocab: Record<string, number> };
      added_tokens?: { id: number }[];
    };
    const ids = [...Object.values(model.vocab), ...added.map(({ id }) => id)];
    const base = at(`tokenizer-${name}`);
    zeroModel(base, Math.max(...ids) + 1);
    writeFileSync(join(base, "tokenizer.json"), json);
    cpSync(join(fixtures, name, "tokenizer_config.json"), join(base, "tokenizer_config.json"));
    const file = at(`tokenizer-${name}.gguf`);
    await exportModel({ to: "gguf", baseModel: base, output: file, type: "f16" });
    const golden = (JSON.parse(unpacked("golden.json.gz")) as { ids: number[][] }).ids;
    const all = JSON.parse(gunzipSync(readFileSync(join(fixtures, "texts.json.gz"))).toString()) as string[];
    // llama.cpp does not compose characters first, and takes these texts for special tokens in every vocabulary.
    const isOwn = (text: string) => text !== text.normalize("NFC") || /<\/s>|<\|im_end\|>/.test(text);
    const cases = all.flatMap((text, i) => (isOwn(text) ? [] : [{ text, ids: golden[i]! }]));
    const [result] = runLlama([{ file, texts: cases.map(({ text }) => text) }]);
    const differing = cases.filter(({ ids }, i) => result!.encoded[i]!.join() !== ids.join());
    expect(cases.length).toBeGreaterThan(2000);
    expect(differing).toEqual([]);
    report.tokenizers.push({ name, texts: cases.length });
  });
});

/** A model of one layer that has these many tokens and no weights to speak of. */
function zeroModel(path: string, vocabSize: number): void {
  const config = {
    ...{ model_type: "qwen2", hidden_size: 32, intermediate_size: 32, num_hidden_layers: 1 },
    ...{ num_attention_heads: 1, num_key_value_heads: 1, vocab_size: vocabSize, tie_word_embeddings: true },
  };
  const zeros = (...shape: number[]) => ({
    shape,
    data: new Float32Array(shape.reduce((product, size) => product * size)),
  });
  const layer = "model.layers.0";
  writeModel(path, config, [
    {
      "model.embed_tokens.weight": zeros(vocabSize, 32),
      "model.norm.weight": zeros(32),
      [`${layer}.input_layernorm.weight`]: zeros(32),
      [`${layer}.post_attention_layernorm.weight`]: zeros(32),
      ...Object.fromEntries(
        ["q", "k", "v"].flatMap((name) => [
          [`${layer}.self_attn.${name}_proj.weight`, zeros(32, 32)],
          [`${layer}.self_attn.${name}_proj.bias`, zeros(32)],
        ]),
      ),
      [`${layer}.self_attn.o_proj.weight`]: zeros(32, 32),
      ...Object.fromEntries(
        ["gate", "up", "down"].map((name) => [`${layer}.mlp.${name}_proj.weight`, zeros(32, 32)]),
      ),
    },
  ]);
}
