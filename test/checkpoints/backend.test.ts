import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { downloadCheckpoint, mergeAdapter, pushToHub, readAdapter } from "../../src/checkpoints/index.js";
import { RestClient, ServiceClient, type TrainingClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { fixture } from "../engine/golden.js";
import { startFakeHub } from "./fake-hub.js";

const model = { name: "test/tiny", path: fixture("qwen3") };
const tokens = Array.from({ length: 12 }, (_, index) => (index * 7) % 50);

describe("checkpoints of the built-in backend", () => {
  let folder: string;
  let backend: LocalBackend;
  let service: ServiceClient;
  let rest: RestClient;
  let training: TrainingClient;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-checkpoints-"));
    const engine = await startEngine({ models: [model], threads: 1, inThread: true });
    backend = await startLocalBackend({ engine, dataDir: join(folder, "data") });
    service = new ServiceClient(backend);
    rest = new RestClient(backend);
    training = await service.createLoraTrainingClient({ baseModel: model.name, rank: 4, seed: 3 });
    const datum = {
      modelInput: tokens,
      lossFnInputs: { targetTokens: tokens, weights: tokens.map(() => 1) },
    };
    for (let step = 0; step < 5; step += 1) {
      await training.forwardBackward([datum], "cross_entropy");
      await training.optimStep({ learningRate: 1e-2 });
    }
  });
  afterAll(async () => {
    await service.close();
    await backend.close();
    await rm(folder, { recursive: true });
  });

  it("are downloaded, read, and merged to a model that answers as the run does", async () => {
    const { path } = await training.saveState("trained");
    const downloaded = await downloadCheckpoint(rest, path, { outputDir: folder });
    expect(downloaded.files).toContain("optimizer.safetensors");
    const adapter = await readAdapter(downloaded.folder);
    expect(adapter).toMatchObject({ rank: 4, alpha: 32, baseModel: model.name });
    expect(Object.keys(adapter.tensors)).toHaveLength(2 * 15);

    const merged = join(folder, "merged");
    await mergeAdapter(model.path, downloaded.folder, merged);
    const engine = await startEngine({
      models: [{ name: "test/merged", path: merged }],
      threads: 1,
      inThread: true,
    });
    const other = await startLocalBackend({ engine, dataDir: join(folder, "merged-data"), listen: false });
    await using otherService = new ServiceClient(other);
    const plain = await otherService.createSamplingClient({ baseModel: "test/merged" });
    const sampler = await training.saveWeightsAndGetSamplingClient();
    const [expected, actual] = await Promise.all([
      sampler.computeLogprobs(tokens),
      plain.computeLogprobs(tokens),
    ]);
    expected.forEach((logprob, index) => {
      if (logprob === null) expect(actual[index]).toBeNull();
      else expect(actual[index]).toBeCloseTo(logprob, 4);
    });
    await other.close();
  });

  it("are downloaded file by file when they are external", async () => {
    const { path } = await training.saveWeightsExternal("outside");
    const downloaded = await downloadCheckpoint(rest, path, { outputDir: folder });
    expect(downloaded.files).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
    expect((await readAdapter(downloaded.folder)).rank).toBe(4);
    expect((await readdir(folder)).filter((name) => name.startsWith("."))).toEqual([]);
  });

  it("are pushed", async () => {
    const hub = await startFakeHub();
    try {
      const { path } = await training.saveState("pushed");
      const { repo, revision } = await pushToHub(rest, path, { token: "hf_good", hubUrl: hub.url });
      expect(revision).toBe("weights-pushed");
      expect(hub.commits[0]!.files).toEqual([
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
      ]);
      const card = hub.repos.get(repo)!.branches.get(revision)!.get("README.md")!.toString();
      expect(card).toContain("base_model: test/tiny\n");
      expect(card).toContain("- LoRA rank: 4\n");
    } finally {
      await hub.close();
    }
  });
});
