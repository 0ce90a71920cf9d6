import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { EngineInputError } from "../../src/local/engine/engine.js";
import { checkModel } from "../../src/local/engine/model/base-model.js";
import { resolveModel } from "../../src/local/model-source.js";
import { FakeHub } from "../support/fake-hub.js";

const files: Record<string, string> = {
  "config.json": '{"model_type":"qwen3"}',
  "model.safetensors": "weights",
  "tokenizer.json": "{}",
  "README.md": "not needed",
  "pytorch_model.bin": "not needed",
  "consolidated.safetensors": "not needed",
};

describe("a model", () => {
  let folder: string;
  let hub: FakeHub;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-model-"));
    hub = await FakeHub.start("some-org/some-model", files);
    vi.stubEnv("HF_ENDPOINT", hub.url);
    vi.stubEnv("HF_HUB_CACHE", join(folder, "cache"));
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await hub.close();
    await rm(folder, { recursive: true });
  });

  it("may be a folder, under its own name or a given one", async () => {
    const path = join(folder, "my-model");
    await mkdir(path);
    await expect(resolveModel(path)).rejects.toThrow(/neither a folder with a config.json/);
    await writeFile(join(path, "config.json"), "{}");
    expect(await resolveModel(path)).toEqual({ name: "my-model", path });
    expect(await resolveModel({ name: "me/mine", path })).toEqual({ name: "me/mine", path });
    await expect(resolveModel({ name: "x", path: folder })).rejects.toThrow(/has no config.json/);
  });

  it("may be the package's own", async () => {
    expect(await resolveModel("tinkerts/nano")).toEqual(defaultModel);
  });

  it("of the hub is downloaded once, without files that are not needed", async () => {
    const { name, path } = await resolveModel("some-org/some-model");
    expect(name).toBe("some-org/some-model");
    expect(await readFile(join(path, "model.safetensors"), "utf8")).toBe("weights");
    expect(await readFile(join(path, "config.json"), "utf8")).toBe(files["config.json"]);
    expect(hub.asked.join("\n")).not.toMatch(/README|pytorch_model|consolidated/);
    hub.asked.length = 0;
    expect(await resolveModel("some-org/some-model@main")).toEqual({ name, path });
    expect(hub.asked).toEqual([]);
  });

  it("of the hub says how far its download is, and goes on where one was given up", async () => {
    const seen: { bytes: number; totalBytes: number | undefined }[] = [];
    const given = new AbortController();
    hub.holdAfter("model.safetensors", 4);
    const first = resolveModel("some-org/some-model", {
      signal: given.signal,
      onProgress: (progress) => {
        seen.push(progress);
        // What is left now is the rest of the weights.
        if (progress.bytes === progress.totalBytes! - 3) given.abort();
      },
    });
    await expect(first).rejects.toThrow(/The download of some-org\/some-model was aborted/);
    hub.asked.length = 0;
    hub.holdAfter("model.safetensors", undefined);
    const { path } = await resolveModel("some-org/some-model", { onProgress: (at) => seen.push(at) });
    expect(await readFile(join(path, "model.safetensors"), "utf8")).toBe("weights");
    expect(hub.asked).toEqual([
      "/api/models/some-org/some-model/revision/main",
      `/some-org/some-model/resolve/${FakeHub.COMMIT}/model.safetensors bytes=4-`,
    ]);
    const totalBytes = "{}".length + "weights".length + files["config.json"]!.length;
    expect(seen.at(-1)).toEqual({ name: "some-org/some-model", bytes: totalBytes, totalBytes });
  });

  it("that is larger than the engine's memory is refused by its config.json", () => {
    const config = {
      model_type: "qwen3",
      hidden_size: 4096,
      num_hidden_layers: 36,
      num_attention_heads: 32,
      num_key_value_heads: 8,
      head_dim: 128,
      intermediate_size: 12_288,
      vocab_size: 151_936,
    };
    expect(() => checkModel(config, "Qwen/Qwen3-8B")).toThrow(
      /^Qwen\/Qwen3-8B is too large for this engine: 8191 million parameters of 4 bytes; WebAssembly reaches 4 GiB$/,
    );
    expect(() => checkModel({ ...config, num_hidden_layers: 1, vocab_size: 1000 }, "small")).not.toThrow();
  });

  it("of the hub that is refused for its config.json is not downloaded further", async () => {
    const check = (config: unknown, name: string) => {
      throw new EngineInputError(`${name} is a ${(config as { model_type: string }).model_type}`);
    };
    await expect(resolveModel("some-org/some-model", { check })).rejects.toThrow(
      /^some-org\/some-model is a qwen3$/,
    );
    expect(hub.asked.join("\n")).not.toMatch(/safetensors/);
  });

  it("is an error that says why when the hub cannot be reached", async () => {
    await hub.close();
    await expect(resolveModel("some-org/some-model")).rejects.toThrow(
      /some-org\/some-model could not be downloaded.*ECONNREFUSED.*A folder that holds the model/,
    );
  });

  it("that the hub does not have is an error which names it", async () => {
    await expect(resolveModel("some-org/missing")).rejects.toThrow(
      /some-org\/missing could not be downloaded/,
    );
  });
});
