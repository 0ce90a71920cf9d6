import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { AdapterState } from "../engine/engine.js";
import {
  checkName,
  openStore,
  type RunRecord,
  readAdapterFolder,
  type Store,
  writeAdapterFiles,
} from "./index.js";

const A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
const B = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

function state(value: number): AdapterState {
  return {
    lora: { rank: 2, seed: 7, trainAttn: true, trainMlp: false, trainUnembed: false },
    tensors: {
      [A]: { shape: [2, 3], data: Float32Array.of(value, 0.1, -2, 1e-30, Math.fround(Math.PI), 6) },
      [B]: { shape: [3, 2], data: Float32Array.of(1, 2, 3, 4, 5, value) },
    },
    optimizer: {
      step: 12_345,
      first: { [A]: Float32Array.of(value, 1, 2, 3, 4, 5) },
      second: { [A]: Float32Array.of(5, 4, 3, 2, 1, value) },
    },
  };
}

function runOf(id: string): RunRecord {
  return {
    id,
    owner: "local",
    sessionId: "s",
    projectId: null,
    baseModel: "some/model",
    lora: state(0).lora,
    userMetadata: null,
    createdAt: 1,
    lastRequestAt: 1,
    corrupted: false,
  };
}

let folder: string;
let store: Store;
let now: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "tinkerts-store-"));
  now = 1_000;
  store = await openStore(folder, { wallNow: () => now++ });
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

async function reopen(): Promise<void> {
  await store.close();
  store = await openStore(folder, { wallNow: () => now++ });
}

async function save(name: string, value: number, overwrite = false) {
  const run = store.runs.get("s:train:0") ?? runOf("s:train:0");
  await store.runs.save(run);
  const request = {
    run,
    kind: "weights",
    name,
    expiresAt: null,
    userMetadata: { v: String(value) },
    overwrite,
  } as const;
  return store.checkpoints.save(request, { type: "state", state: state(value) });
}

const checkpointsFolder = () => join(folder, "runs", "s_train_0", "checkpoints", "weights");

describe("a checkpoint", () => {
  it("comes back bit for bit after a restart", async () => {
    const saved = await save("a", 0.3);
    await reopen();
    expect(store.runs.list().map((run) => run.id)).toEqual(["s:train:0"]);
    const [listed] = store.checkpoints.list();
    expect(listed).toEqual(saved);
    const read = await store.checkpoints.readState(listed!, store.runs.get("s:train:0")!.lora);
    expect(read).toEqual(state(0.3));
  });

  it("that was only half written is not listed, and its rest is swept up", async () => {
    await save("a", 1);
    const half = join(checkpointsFolder(), ".tmp-0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f");
    await cp(join(checkpointsFolder(), "a"), half, { recursive: true });
    const noRecord = join(checkpointsFolder(), "b");
    await mkdir(noRecord);
    await writeFile(join(noRecord, "adapter_model.safetensors"), "cut");
    await reopen();
    expect(store.checkpoints.list().map((record) => record.name)).toEqual(["a"]);
    expect(await readdir(checkpointsFolder())).not.toContain(half.split("/").at(-1));
  });

  it("being replaced survives a crash between the two renames", async () => {
    await save("a", 1);
    // What the disk looks like when the process dies after the old one was set aside.
    const aside = join(checkpointsFolder(), ".old-0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f-a");
    await rename(join(checkpointsFolder(), "a"), aside);
    await mkdir(join(checkpointsFolder(), ".tmp-1f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f"));
    await reopen();
    const [record] = store.checkpoints.list();
    expect(await store.checkpoints.readState(record!, state(0).lora)).toEqual(state(1));
    expect(await readdir(checkpointsFolder())).toEqual(["a"]);
  });

  it("that was replaced is the new one after a crash before the old one was removed", async () => {
    await save("a", 1);
    const aside = join(checkpointsFolder(), ".old-0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f-a");
    await cp(join(checkpointsFolder(), "a"), aside, { recursive: true });
    await save("a", 2, true);
    await reopen();
    const [record] = store.checkpoints.list();
    expect(await store.checkpoints.readState(record!, state(0).lora)).toEqual(state(2));
    expect(await readdir(checkpointsFolder())).toEqual(["a"]);
  });

  it("is not taken from its owner by another of the same name", async () => {
    await save("a", 1);
    await expect(save("a", 2)).rejects.toThrow(/exists already/);
    await Promise.allSettled([save("b", 1), save("b", 2), save("b", 3)]);
    const record = store.checkpoints.get("s:train:0", "weights", "b");
    const read = await store.checkpoints.readState(record!, state(0).lora);
    expect(read.tensors[A]?.data[0]).toBe(Number(record?.userMetadata?.["v"]));
  });

  it("that replaces another within a millisecond is distinguished from it", async () => {
    const first = await save("a", 1);
    now = first.createdAt;
    const second = await save("a", 2, true);
    expect(second.createdAt).toBeGreaterThan(first.createdAt);
    expect(await store.checkpoints.remove(first)).toBe(false);
    expect(store.checkpoints.get(second.runId, "weights", "a")).toEqual(second);
  });

  it("that expired is not deleted in place of its successor", async () => {
    const first = await save("a", 1);
    await store.checkpoints.update(first, { expiresAt: now });
    await save("a", 2);
    expect(await store.checkpoints.remove(first)).toBe(false);
    expect(store.checkpoints.list()).toHaveLength(1);
  });

  it("keeps what was published and set across restarts", async () => {
    const record = await save("a", 1);
    await store.checkpoints.update(record, { public: true });
    await store.checkpoints.update(record, { expiresAt: 9e12 });
    await reopen();
    expect(store.checkpoints.list()).toMatchObject([{ public: true, expiresAt: 9e12 }]);
  });
});

describe("a PEFT folder", () => {
  it("of another lora_alpha gives the same output: B takes the difference", async () => {
    await writeAdapterFiles(folder, state(1), "some/model");
    const config = JSON.parse(await readFile(join(folder, "adapter_config.json"), "utf8")) as object;
    await writeFile(join(folder, "adapter_config.json"), JSON.stringify({ ...config, lora_alpha: 16 }));
    const read = await readAdapterFolder(folder);
    expect([...read.tensors[B]!.data]).toEqual([0.5, 1, 1.5, 2, 2.5, 0.5]);
    expect(read.tensors[A]).toEqual(state(1).tensors[A]);
    expect(read.lora).toEqual({ rank: 2, seed: 0, trainAttn: true, trainMlp: false, trainUnembed: false });
  });

  it("of PEFT with its copy of the base model's head, and of rank-stabilised LoRA, reads as PEFT applies it", async () => {
    const head = "base_model.model.lm_head";
    const { lora, tensors } = state(1);
    const written = {
      ...tensors,
      [`${head}.lora_A.weight`]: { shape: [2, 3], data: new Float32Array(6) },
      [`${head}.lora_B.weight`]: { shape: [4, 2], data: new Float32Array(8) },
      [`${head}.base_layer.weight`]: { shape: [4, 3], data: new Float32Array(12) },
    };
    await writeAdapterFiles(
      folder,
      { lora: { ...lora, trainUnembed: true }, tensors: written },
      "some/model",
    );
    await changeConfig({ use_rslora: true, lora_alpha: 16 });
    const read = await readAdapterFolder(folder);
    expect(Object.keys(read.tensors)).not.toContain(`${head}.base_layer.weight`);
    expect(read.lora.trainUnembed).toBe(true);
    // Scaled by alpha / sqrt(r) there, by 32 / r here.
    const factor = 16 / Math.SQRT2 / (32 / 2);
    expect(read.tensors[B]!.data[2]).toBe(Math.fround(3 * factor));
  });

  it("of the service, with an alpha of its own for some modules, reads as PEFT applies it", async () => {
    const { lora, tensors } = state(1);
    const written = {
      "model.layers.0.self_attn.q_proj.lora_A.default.weight": tensors[A]!,
      "model.layers.0.self_attn.q_proj.lora_B.default.weight": tensors[B]!,
      "base_model.model.model.unembed_tokens.lora_A.weight": { shape: [2, 3], data: new Float32Array(6) },
      "base_model.model.model.unembed_tokens.lora_B.weight": { shape: [1, 2], data: Float32Array.of(1, 2) },
    };
    await writeAdapterFiles(folder, { lora, tensors: written }, "some/model");
    await changeConfig({ alpha_pattern: { q_proj: 8 } });
    const read = await readAdapterFolder(folder);
    expect(Object.keys(read.tensors).sort()).toEqual([
      "base_model.model.lm_head.lora_A.weight",
      "base_model.model.lm_head.lora_B.weight",
      A,
      B,
    ]);
    expect([...read.tensors[B]!.data]).toEqual([0.25, 0.5, 0.75, 1, 1.25, 0.25]);
    expect([...read.tensors["base_model.model.lm_head.lora_B.weight"]!.data]).toEqual([1, 2]);
    expect(read.lora).toMatchObject({ trainAttn: true, trainMlp: false, trainUnembed: true });
  });

  it.each([
    [{ use_dora: true }, /use_dora \(true\) are not supported/],
    [{ rank_pattern: { q_proj: 8 } }, /rank_pattern/],
    [{ bias: "all" }, /bias \("all"\) are not supported/],
    [{ modules_to_save: ["lm_head"] }, /modules_to_save/],
    [{ peft_type: "LOHA" }, /peft_type/],
    [{ r: "8" }, /r must be a positive integer, got "8"/],
  ])("with %j is refused by name", async (changes, message) => {
    await writeAdapterFiles(folder, state(1), "some/model");
    await changeConfig(changes);
    await expect(readAdapterFolder(folder)).rejects.toThrow(message);
  });

  async function changeConfig(changes: object): Promise<void> {
    const path = join(folder, "adapter_config.json");
    const config = JSON.parse(await readFile(path, "utf8")) as object;
    await writeFile(path, JSON.stringify({ ...config, ...changes }));
  }
});

describe("a data folder", () => {
  it("belongs to one server at a time", async () => {
    await expect(openStore(folder, { wallNow: () => 0 })).rejects.toThrow(/in use by this process/);
    await store.close();
    await writeFile(join(folder, ".lock"), "1");
    await expect(openStore(folder, { wallNow: () => 0 })).rejects.toThrow(/in use by process 1;/);
    // A lock whose process is gone is free.
    await writeFile(join(folder, ".lock"), "999999999");
    store = await openStore(folder, { wallNow: () => now });
  });

  it("forgets what a crash left half written, wherever that lies", async () => {
    const usage = { owner: "o", sessionId: "s", baseModel: "m", kind: "training" } as const;
    const checkpoint = await save("a", 1);
    await store.sessions.saveTrace("s", "{}");
    store.usage.add(3_600_500, { ...usage, count: 5 });
    await store.flush();
    const [hour] = await readdir(join(folder, "usage"));
    // Whole, but never renamed to its place; what came after it counts.
    const stale = (await readFile(join(folder, "usage", hour!), "utf8")).replace("5", "3");
    const places = ["usage", "sessions", "traces", "runs/s_train_0"].map((place) => join(folder, place));
    places.push(store.checkpoints.folderOf(checkpoint));
    for (const place of places) await writeFile(join(place, ".tmp-1"), stale);
    for (const place of places) await writeFile(join(place, ".tmp-2"), '[{"hourSt');
    await writeFile(join(folder, "runs", "stray"), "");
    await reopen();
    for (const place of places)
      expect((await readdir(place)).filter((name) => name.startsWith("."))).toEqual([]);
    expect(store.usage.between(0, 1e9)).toMatchObject([{ count: 5 }]);
    expect(store.checkpoints.list()).toHaveLength(1);
  });

  it("keeps the last word on a run, whatever is written at the same time", async () => {
    const run = runOf("s:train:0");
    await store.runs.save(run);
    const flushed = Array.from({ length: 8 }, (_, index) => {
      store.runs.touch(run, 100 + index);
      return store.runs.flush();
    });
    run.corrupted = true;
    const marked = store.runs.save(run);
    store.runs.touch(run, 200);
    await Promise.all([...flushed, marked]);
    await reopen();
    expect(store.runs.get(run.id)).toMatchObject({ corrupted: true, lastRequestAt: 200 });
  });

  it("keeps audit lines and usage across restarts, and leaves out a line cut short", async () => {
    const entry = { owner: "o", event: "checkpoints.created", modelId: null, tinkerPath: "x", details: {} };
    await store.audit.append({ ...entry, timestamp: "2026-01-01T00:00:00.000Z" });
    store.usage.add(3_600_500, { owner: "o", sessionId: "s", baseModel: "m", kind: "training", count: 5 });
    store.usage.add(3_600_900, { owner: "o", sessionId: "s", baseModel: "m", kind: "training", count: 7 });
    await reopen();
    await writeFile(join(folder, "audit", "2026-01-01.jsonl"), '{"timestamp":"2026-', { flag: "a" });
    expect(await store.audit.read("2026-01-01")).toHaveLength(1);
    expect(store.usage.between(0, 1e9)).toEqual([
      { hourStart: 3_600_000, owner: "o", sessionId: "s", baseModel: "m", kind: "training", count: 12 },
    ]);
  });
});

describe("a name", () => {
  it.each(["a", "step-0001", "final.v2", "_x", "A".repeat(128)])("%s is allowed", (name) => {
    expect(checkName(name)).toBeUndefined();
  });
  it.each([
    "",
    ".",
    "..",
    ".hidden",
    "a/b",
    "a\\b",
    "a b",
    "a\0b",
    "é",
    "end.",
    "nul",
    "COM1.txt",
    "-x",
    "A".repeat(129),
  ])("%j is not", (name) => {
    expect(checkName(name)).toBeTypeOf("string");
  });
});
