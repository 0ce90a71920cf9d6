import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type CheckpointSource, type PushOptions, pushToHub } from "../../src/checkpoints/index.js";
import type { WeightsInfo } from "../../src/wire/index.js";
import { type FakeHub, startFakeHub } from "./fake-hub.js";
import { type FileServer, startFileServer } from "./file-server.js";
import { tarGz } from "./tar-writer.js";

const PATH = "tinker://run-1/weights/final";
const weights = randomBytes(50_000);
const info: WeightsInfo = {
  baseModel: "Qwen/Qwen3-8B",
  isLora: true,
  loraRank: 32,
  trainAttn: true,
  trainMlp: true,
  trainUnembed: false,
};

let hub: FakeHub;
let server: FileServer;
let source: CheckpointSource;
let temporary: string;
beforeEach(async () => {
  [hub, server] = await Promise.all([startFakeHub(), startFileServer()]);
  source = { ...server.rest, getWeightsInfo: async () => info };
  server.files.set(
    "/archive",
    tarGz([
      { name: "adapter_config.json", content: '{"r": 32, "base_model_name_or_path": null}' },
      { name: "adapter_model.safetensors", content: weights },
      { name: "optimizer.safetensors", content: "moments" },
      { name: "checkpoint_complete", content: "" },
      { name: "notes/extra.txt", content: "more" },
    ]),
  );
  temporary = mkdtempSync(join(tmpdir(), "push-"));
  vi.stubEnv("TMPDIR", temporary);
  for (const name of ["HF_TOKEN", "HF_ENDPOINT", "HF_HOME"]) vi.stubEnv(name, undefined);
  vi.stubEnv("HF_HOME", temporary);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await Promise.all([hub.close(), server.close()]);
  rmSync(temporary, { recursive: true, force: true });
});

const push = (options: PushOptions = {}, path = PATH) =>
  pushToHub(source, path, { repo: "ada/adapter", token: "hf_good", hubUrl: hub.url, ...options });
const file = (path: string, repo = "ada/adapter", branch = "main") =>
  hub.repos.get(repo)?.branches.get(branch)?.get(path);

describe("pushToHub", () => {
  it("makes a private repository with the adapter and a model card", async () => {
    const result = await push();
    expect(result).toEqual({
      repo: "ada/adapter",
      revision: "main",
      url: `${hub.url}/ada/adapter`,
      commit: "c0ffee",
      pullRequestUrl: undefined,
    });
    expect(hub.repos.get("ada/adapter")!.visibility).toBe("private");
    expect(hub.commits).toEqual([
      {
        repo: "ada/adapter",
        branch: "main",
        summary: `Upload ${PATH}`,
        pullRequest: false,
        files: ["README.md", "adapter_config.json", "adapter_model.safetensors", "notes/extra.txt"],
      },
    ]);
    expect(file("adapter_model.safetensors")!.equals(weights)).toBe(true);
    expect(JSON.parse(file("adapter_config.json")!.toString())).toEqual({
      r: 32,
      base_model_name_or_path: "Qwen/Qwen3-8B",
    });
    const card = file("README.md")!.toString();
    expect(card).toContain("---\nbase_model: Qwen/Qwen3-8B\nlibrary_name: peft\ntags:\n- tinker\n");
    expect(card).toContain(
      "- base_model:adapter:Qwen/Qwen3-8B\ntinker_path: tinker://run-1/weights/final\n---\n",
    );
    expect(card).toContain("LoRA rank: 32\n- Trained parts: attention, MLP\n");
    expect(hub.credentials).toEqual(new Set(["Bearer hf_good"]));
    expect(readdirSync(temporary)).toEqual([]);
  });

  it("names repository and branch for run and checkpoint by default", async () => {
    const path = "tinker://run:train:0/weights/step 7";
    const result = await push({ repo: undefined }, path);
    expect(result).toMatchObject({ repo: "ada/tinker-Qwen3-8B-run-train-0", revision: "weights-step-7" });
    expect(result.url).toBe(`${hub.url}/ada/tinker-Qwen3-8B-run-train-0/tree/weights-step-7`);
    expect(file("adapter_model.safetensors", result.repo, "weights-step-7")!.equals(weights)).toBe(true);
    await push({ repo: undefined }, path);
    expect(hub.commits).toHaveLength(2);
    await push({ repo: undefined }, "tinker://run:train:0/weights/step 8");
    expect(hub.commits.map(({ branch }) => branch)).toEqual([
      "weights-step-7",
      "weights-step-7",
      "weights-step-8",
    ]);
  });

  it("refuses a repository of another checkpoint, before downloading anything, and takes its own again", async () => {
    await push();
    server.requests = [];
    const other = push({}, "tinker://run-2/weights/final");
    await expect(other).rejects.toThrow(
      "ada/adapter (main) holds another checkpoint: tinker://run-1/weights/final, not tinker://run-2/weights/final.",
    );
    expect(server.requests).toEqual([]);
    expect(hub.commits).toHaveLength(1);
    await push({ revision: "second" }, "tinker://run-2/weights/final").catch(() => undefined);
    expect(hub.commits.map(({ branch }) => branch)).toEqual(["main", "second"]);
    await push();
    expect(hub.commits).toHaveLength(3);
  });

  it.each([
    ["a path in the text", "See `tinker://run-9/weights/a`."],
    ["the Python CLI's entry", "---\nlibrary_name: peft\ntinker_path: tinker://run-9/weights/a\n---\n"],
    ["a longer name", "---\ntinker_path: tinker://run-1/weights/final 2\n---\n"],
  ])("knows another checkpoint by %s", async (_name, readme) => {
    hub.addRepo("ada/adapter", "private", { "README.md": readme });
    await expect(push()).rejects.toThrow("holds another checkpoint: tinker://run-");
  });

  it("takes a repository with a card that names no checkpoint", async () => {
    hub.addRepo("ada/adapter", "private", { "README.md": "# mine" });
    await push();
    expect(hub.commits).toHaveLength(1);
  });

  it("does not publish by accident: an existing public repository needs private: false", async () => {
    hub.addRepo("ada/adapter", "public");
    await expect(push()).rejects.toThrow("ada/adapter is public; pass private: false");
    expect(hub.commits).toEqual([]);
    await push({ private: false });
    expect(hub.commits).toHaveLength(1);
    await push({ repo: "open", private: false });
    expect(hub.repos.get("ada/open")!.visibility).toBe("public");
  });

  it("opens a pull request and takes a message", async () => {
    hub.addRepo("ada/adapter", "private");
    const result = await push({ createPr: true, commitMessage: "Step 7" });
    expect(result.pullRequestUrl).toBe(`${hub.url}/ada/adapter/discussions/1`);
    expect(hub.commits[0]).toMatchObject({ pullRequest: true, summary: "Step 7" });
  });

  it.each<[PushOptions, string[]]>([
    [{ allowPatterns: ["adapter_*"] }, ["adapter_config.json", "adapter_model.safetensors"]],
    [
      { allowPatterns: ["*"], ignorePatterns: ["*.json", "notes/"] },
      ["README.md", "adapter_model.safetensors", "checkpoint_complete", "optimizer.safetensors"],
    ],
    [{ ignorePatterns: ["[mn]otes/*", "README.m?"] }, ["adapter_config.json", "adapter_model.safetensors"]],
    [{ ignorePatterns: ["*.txt"], modelCard: false }, ["adapter_config.json", "adapter_model.safetensors"]],
  ])("pushes the files that the patterns choose %#", async (options, files) => {
    await push(options);
    expect(hub.commits[0]!.files).toEqual(files);
  });

  it("says so when the patterns choose nothing", async () => {
    await expect(push({ allowPatterns: ["*.gguf"] })).rejects.toThrow(
      "None of the files matches the patterns",
    );
    expect(hub.repos.size).toBe(0);
  });

  it("takes a card of the caller's", async () => {
    await push({ modelCard: "# My own" });
    expect(file("README.md")!.toString()).toBe("# My own");
  });

  it("pushes without knowing the base model, when the server does not tell", async () => {
    source.getWeightsInfo = async () => {
      throw new Error("not here");
    };
    const { repo } = await push({ repo: undefined });
    expect(repo).toBe("ada/tinker-adapter-run-1");
    const card = file("README.md", repo, "weights-final")!.toString();
    expect(card).toContain("Base model: unknown");
    expect(card).not.toContain("base_model:");
  });

  it("refuses what is no adapter, and makes no repository for it", async () => {
    server.files.set(
      "/archive",
      tarGz([
        { name: "adapter_config.json", content: "{}" },
        { name: "adapter_model.safetensors.age", content: "x" },
      ]),
    );
    await expect(push()).rejects.toThrow(
      "is not a PEFT adapter: it has no adapter_model.safetensors. Encrypted",
    );
    expect(hub.repos.size).toBe(0);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it("finds the token where it is kept, and says where it looked", async () => {
    const withoutToken = { token: undefined };
    await expect(push(withoutToken)).rejects.toThrow("pass token, set HF_TOKEN, or run hf auth login");
    mkdirSync(temporary, { recursive: true });
    writeFileSync(join(temporary, "token"), "hf_good\n");
    await push(withoutToken);
    vi.stubEnv("HF_TOKEN", "hf_bad");
    await expect(push(withoutToken)).rejects.toThrow("The Hub does not know this token");
    await expect(push({ token: "tml-x" })).rejects.toThrow('begins with "hf_"');
  });

  it("reads HF_ENDPOINT", async () => {
    vi.stubEnv("HF_ENDPOINT", `${hub.url}/`);
    expect((await push({ hubUrl: undefined })).url).toBe(`${hub.url}/ada/adapter`);
  });

  it.each(["a/b/c", "ada/", "ada/ adapter", "../x"])("refuses the repository name %s", async (repo) => {
    await expect(push({ repo })).rejects.toThrow("repo must look like owner/name");
  });

  it("stops when its signal aborts", async () => {
    const controller = new AbortController();
    const pushing = push({ signal: controller.signal, onProgress: () => controller.abort() });
    await expect(pushing).rejects.toThrow("aborted");
    expect(hub.commits).toEqual([]);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it("says what is wrong with a Hub that cannot be reached, and does not blame the token", async () => {
    const { url } = hub;
    await hub.close();
    await expect(push({ hubUrl: url })).rejects.toThrow(
      /does not say whose token this is: connect ECONNREFUSED/,
    );
  });

  it("stops at a Hub that never answers", async () => {
    const controller = new AbortController();
    const silent = createServer(() => controller.abort());
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    try {
      const hubUrl = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
      await expect(push({ hubUrl, signal: controller.signal })).rejects.toThrow("The push was aborted");
    } finally {
      silent.closeAllConnections();
      silent.close();
    }
  });
});
