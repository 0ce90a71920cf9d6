import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { createReferenceKernels } from "../../../../test/engine/reference-kernels.js";
import { decodeSafetensors, encodeSafetensors } from "../../../checkpoints/safetensors.js";
import { EngineInputError } from "../engine.js";
import { fetchModel } from "../fetch-model.js";
import type { F32, Kernels } from "../kernels/kernels.js";
import { put, putInts, randomFloats } from "../kernels/test-support.js";
import { checkModel, loadBaseModel } from "./base-model.js";
import { type ModelFiles, modelFilesOf } from "./model-files.js";
import { openModelFolder } from "./model-folder.node.js";

const fixture = fileURLToPath(new URL("../../../../test/fixtures/engine/qwen3", import.meta.url));
const config = JSON.parse(readFileSync(join(fixture, "config.json"), "utf8"));
const { tensors } = decodeSafetensors(readFileSync(join(fixture, "model.safetensors")));
const rename = (named: typeof tensors, to: (name: string) => string) =>
  Object.fromEntries(Object.entries(named).map(([name, tensor]) => [to(name), tensor]));

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true });
});

/** A folder with these files and the fixture's configuration. */
function folderWith(files: Record<string, string | Uint8Array>): string {
  const folder = mkdtempSync(join(tmpdir(), "base-model-"));
  folders.push(folder);
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return folder;
}

const inMemory = (named: typeof tensors) =>
  modelFilesOf({ path: "memory", config, weights: [encodeSafetensors(named)] });

/** What every matrix and vector of a model makes of some input. */
async function fingerprint(files: ModelFiles): Promise<Float32Array[]> {
  const kernels: Kernels = createReferenceKernels();
  const { weights, config: read } = await loadBaseModel(kernels, "m", files);
  files.close();
  const results: F32[] = [weights.finalNorm];
  const rows = kernels.alloc(2 * read.hiddenSize);
  kernels.gatherRows(rows, weights.embedding, putInts(kernels, [3, read.vocabSize - 1]), 2, read.hiddenSize);
  results.push(rows);
  for (const layer of weights.layers) {
    for (const { weight, inputs, outputs } of [layer.qkv, layer.output, layer.gateUp, layer.down]) {
      const out = kernels.alloc(outputs);
      kernels.matmul(out, put(kernels, randomFloats(inputs, 1)), weight, 1, outputs, inputs);
      results.push(out);
    }
    results.push(layer.inputNorm, layer.postNorm);
  }
  return Promise.all(results.map((buffer) => kernels.download(buffer)));
}

describe("a base model", () => {
  it("is the same from a folder, from shards without the decoder's prefix, from memory and from an address", async () => {
    const expected = await fingerprint(openModelFolder(fixture));
    expect(expected.flatMap((values) => [...values]).every(Number.isFinite)).toBe(true);
    const bare = rename(tensors, (name) => name.replace(/^model\./, ""));
    const half = Object.keys(bare).length >> 1;
    const shard = (part: [string, (typeof tensors)[string]][]) => encodeSafetensors(Object.fromEntries(part));
    const weight_map = Object.fromEntries(
      Object.keys(bare).map((name, index) => [name, index < half ? "a.safetensors" : "b.safetensors"]),
    );
    const sharded = folderWith({
      "a.safetensors": shard(Object.entries(bare).slice(0, half)),
      "b.safetensors": shard(Object.entries(bare).slice(half)),
      "model.safetensors.index.json": JSON.stringify({ weight_map }),
    });
    expect(await fingerprint(openModelFolder(sharded))).toEqual(expected);
    expect(await fingerprint(inMemory(tensors))).toEqual(expected);
    const server = createServer(({ url }, response) => {
      try {
        response.end(readFileSync(join(sharded, url!.replace("/models/m/", ""))));
      } catch {
        response.writeHead(404).end();
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    try {
      const fetched = await fetchModel("m", `${origin}/models/m`);
      expect(await fingerprint(fetched.open())).toEqual(expected);
      expect(fetched).not.toHaveProperty("tokenizer");
      await expect(fetchModel("m", `${origin}/elsewhere/`)).rejects.toThrow(
        `there is no config.json at ${origin}/elsewhere/`,
      );
    } finally {
      server.close();
    }
  });

  it("takes end tokens from generation_config.json", async () => {
    const files = { ...inMemory(tensors), generationConfig: { eos_token_id: [5, 6] } };
    const { info } = await loadBaseModel(createReferenceKernels(), "m", files);
    expect(info.eosTokenIds).toEqual([5, 6]);
  });

  it("is refused before a byte of it is read where tensors are missing or have another shape", async () => {
    const load = (named: typeof tensors) => {
      const files = { ...inMemory(named), read: () => expect.unreachable() };
      return loadBaseModel(createReferenceKernels(), "m", files);
    };
    const { "model.norm.weight": norm, ...others } = tensors;
    await expect(load(others)).rejects.toThrow("memory lacks 1 tensors, the first is model.norm.weight");
    const longer = { shape: [norm!.shape[0]! + 1], data: new Float32Array(norm!.shape[0]! + 1) };
    const wrong = load({ ...others, "model.norm.weight": longer });
    await expect(wrong).rejects.toThrow(EngineInputError);
    await expect(wrong).rejects.toThrow(
      `tensor model.norm.weight has shape [${longer.shape}], expected [${norm!.shape}]`,
    );
  });

  it("is refused where its folder is not one", () => {
    expect(() => openModelFolder(folderWith({}))).toThrow(/has no \.safetensors files/);
    const index = (content: string) => folderWith({ "model.safetensors.index.json": content });
    expect(() => openModelFolder(index("{"))).toThrow(/index\.json is not JSON/);
    expect(() => openModelFolder(index("{}"))).toThrow(/weight_map/);
    expect(() => openModelFolder(index('{"weight_map":{"a":"../a.safetensors"}}'))).toThrow(
      /names a file outside its folder: \.\.\/a\.safetensors/,
    );
    expect(() => openModelFolder(join(fixture, "nowhere"))).toThrow(/cannot read .*config\.json/);
  });

  it("is refused by its configuration where the device has no room for it", () => {
    const large = { ...config, num_hidden_layers: 36, hidden_size: 4096, intermediate_size: 12_288 };
    const gpu = (gibibytes: number) => ({ device: "gpu", memoryBytes: gibibytes * 2 ** 30 }) as const;
    expect(() => checkModel(large, "m")).toThrow(/of 4 bytes; WebAssembly reaches 4 GiB/);
    expect(() => checkModel({ ...large, dtype: "bfloat16" }, "m", gpu(16))).not.toThrow();
    expect(() => checkModel({ ...large, dtype: "float32" }, "m", gpu(16))).toThrow(
      /^m is too large for this engine: \d+ million parameters of 4 bytes; the GPU has 16\.0 GiB for it$/,
    );
    expect(() => checkModel({ ...large, dtype: undefined, torch_dtype: "float16" }, "m", gpu(4))).toThrow(
      /of 2 bytes/,
    );
  });
});
