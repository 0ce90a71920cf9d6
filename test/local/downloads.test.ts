import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { downloadCheckpoint } from "../../src/checkpoints/index.js";
import { RestClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/default-model.js";
import type { LocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { type RawClient, startFake, stepBody } from "./raw-client.js";

/** Enough weights for a download that can be cut off in its middle. */
class LargeEngine extends FakeEngine {
  override async exportAdapter(adapterId: string, options: { optimizer: boolean }) {
    const state = await super.exportAdapter(adapterId, options);
    const data = Float32Array.from({ length: 400_000 }, (_, index) => Math.sin(index));
    return { ...state, tensors: { ...state.tensors, large: { shape: [400_000], data } } };
  }
}

describe("downloads", () => {
  let backend: LocalBackend;
  let client: RawClient;
  let folder: string;
  let path: string;
  let route: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-downloads-"));
    ({ backend, client } = await startFake({ engine: new LargeEngine(), listen: true }));
    const { modelId } = await client.openModel();
    const save = { model_id: modelId, seq_id: 1, path: "big" };
    path = String((await client.result(client.ok("/save_weights_external", save)))["path"]);
    await client.result(client.ok("/save_weights", { model_id: modelId, seq_id: 2, path: "all" }));
    await client.result(client.ok("/optim_step", stepBody(modelId, 3)));
    route = `/training_runs/${modelId}/checkpoints`;
  });
  afterAll(async () => {
    await backend.close();
    await rm(folder, { recursive: true });
  });

  const archiveUrl = async () =>
    String((await client.get(`${route}/weights/all/archive`, { accept: "application/json" })).body["url"]);
  const fileUrl = async () => {
    const { urls } = (await client.get(`${route}/external_weights/big/external_weights_urls`)).body;
    return (urls as Record<string, string>)["adapter_model.safetensors"]!;
  };

  it.each([
    ["an archive", archiveUrl],
    ["a file", fileUrl],
  ])("of %s say their size and can be asked for in parts", async (_, url) => {
    const link = await url();
    const get = (headers: Record<string, string>) => fetch(link, { headers });
    const whole = await get({});
    const bytes = new Uint8Array(await whole.arrayBuffer());
    expect(whole.status).toBe(200);
    expect(whole.headers.get("accept-ranges")).toBe("bytes");
    expect(Number(whole.headers.get("content-length"))).toBe(bytes.length);
    const etag = whole.headers.get("etag")!;
    const ranges: [string, number, number][] = [
      ["bytes=0-9", 0, 10],
      ["bytes=70000-200000", 70_000, 200_001],
      [`bytes=${bytes.length - 5}-`, bytes.length - 5, bytes.length],
      ["bytes=-7", bytes.length - 7, bytes.length],
      [`bytes=100-${bytes.length * 2}`, 100, bytes.length],
      [`bytes=-${bytes.length * 2}`, 0, bytes.length],
    ];
    for (const [range, start, end] of ranges) {
      const part = await get({ range, "if-range": etag });
      expect(part.status, range).toBe(206);
      expect(part.headers.get("content-range")).toBe(`bytes ${start}-${end - 1}/${bytes.length}`);
      expect(part.headers.get("etag")).toBe(etag);
      const received = Buffer.from(await part.arrayBuffer());
      expect(received.equals(bytes.subarray(start, end)), range).toBe(true);
    }
    for (const range of [`bytes=${bytes.length}-`, "bytes=-0"]) {
      const beyond = await get({ range });
      expect(beyond.status).toBe(416);
      expect(beyond.headers.get("content-range")).toBe(`bytes */${bytes.length}`);
    }
    for (const headers of [
      { range: "bytes=5-9", "if-range": '"another version"' },
      { range: "bytes=0-1,4-5" },
      { range: "bytes=9-5" },
      { range: "pages=1-2" },
    ]) {
      const all = await get(headers);
      expect(all.status, JSON.stringify(headers)).toBe(200);
      expect((await all.arrayBuffer()).byteLength).toBe(bytes.length);
    }
    const head = await fetch(link, { method: "HEAD", headers: { range: "bytes=0-4" } });
    expect([head.status, head.headers.get("content-length")]).toEqual([206, "5"]);
  });

  it("of an archive are gzip whose checksum holds, the same each time", async () => {
    const [first, second] = await Promise.all(
      [await archiveUrl(), await archiveUrl()].map(async (url) =>
        Buffer.from(await (await fetch(url)).arrayBuffer()),
      ),
    );
    expect(first!.equals(second!)).toBe(true);
    const tar = gunzipSync(first!);
    expect(tar.length % 512).toBe(0);
    expect(tar.subarray(257, 262).toString()).toBe("ustar");
  });

  it.each(["weights", "external"])("go on where they were cut off: %s", async (kind) => {
    const from = kind === "external" ? path : path.replace("external_weights/big", "weights/all");
    const asked: { range: string | null; status: number }[] = [];
    let cuts = 0;
    const cutting: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      asked.push({ range: new Headers(init?.headers).get("range"), status: response.status });
      if (Number(response.headers.get("content-length")) < 300_000 || cuts >= 2) return response;
      cuts += 1;
      let passed = 0;
      const cut = new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, controller) {
          controller.enqueue(chunk);
          passed += chunk.length;
          if (passed > 200_000) controller.error(new Error("the line was cut"));
        },
      });
      return new Response(response.body!.pipeThrough(cut), response);
    };
    const outputDir = join(folder, kind);
    const { folder: into } = await downloadCheckpoint(new RestClient(backend), from, {
      outputDir,
      fetch: cutting,
    });
    const parts = asked.filter(({ range }) => range !== null);
    expect(parts).toHaveLength(2);
    expect(parts.every(({ status }) => status === 206)).toBe(true);
    const stored = join(
      backend.dataDir,
      "runs",
      from.split("/")[2]!.replaceAll(":", "_"),
      "checkpoints",
      ...from.split("/").slice(3),
      "adapter_model.safetensors",
    );
    const digest = async (file: string) =>
      createHash("sha256")
        .update(await readFile(file))
        .digest("hex");
    expect(await digest(join(into, "adapter_model.safetensors"))).toBe(await digest(stored));
  });

  it("that are given up leave no file open", async () => {
    const openFiles = async () => {
      const links = await readdir("/proc/self/fd").catch(() => []);
      return links.length;
    };
    const before = await openFiles();
    for (let index = 0; index < 20; index += 1) {
      const controller = new AbortController();
      const response = await fetch(await archiveUrl(), { signal: controller.signal });
      if (index % 2 === 0) await response.body!.getReader().read();
      controller.abort();
      await fetch(await fileUrl(), { method: "HEAD" });
    }
    await expect.poll(openFiles).toBeLessThan(before + 10);
  });
});

describe("a model's tokenizer", () => {
  /** The tokenizer of nano, under the fake model's name. */
  class EngineWithTokenizer extends FakeEngine {
    override models = async () => [{ ...fakeModel, tokenizerPath: defaultModel.path }];
  }
  const keys = { apiKeys: ["tml-one-key-of-the-test"] };

  it("is downloaded with a key of the server, as an archive that Python reads", async () => {
    const { backend, client } = await startFake({ engine: new EngineWithTokenizer(), ...keys });
    const url = `/tokenizer?model=${encodeURIComponent(fakeModel.name)}`;
    expect((await client.get(url)).status).toBe(401);
    const withKey = client.withKey("tml-one-key-of-the-test");
    const answer = await withKey.send("GET", `/api/v1${url}`);
    expect(answer.status).toBe(200);
    const tar = gunzipSync(Buffer.from(await answer.arrayBuffer()));
    const tokenizer = await readFile(join(defaultModel.path, "tokenizer.json"));
    expect(tar.subarray(0, 14).toString()).toBe("tokenizer.json");
    expect(tar.subarray(512, 512 + tokenizer.length).equals(tokenizer)).toBe(true);
    expect(tar.includes("tokenizer_config.json")).toBe(true);
    expect(tar.includes("model.safetensors")).toBe(false);
    expect((await withKey.send("HEAD", `/api/v1${url}`)).status).toBe(200);
    expect((await withKey.get("/tokenizer?model=../../etc")).status).toBe(422);
    await backend.close();
  });

  it("is a folder to clients of this machine, and the model's name to others", async () => {
    const { backend, client } = await startFake({ engine: new EngineWithTokenizer(), ...keys });
    const withKey = client.withKey("tml-one-key-of-the-test");
    const { modelId } = await withKey.openModel();
    const info = async (origin: string) => {
      const answer = await withKey.send("POST", `${origin}/api/v1/get_info`, {
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model_id: modelId }),
      });
      return ((await answer.json()) as { model_data: { tokenizer_id: string } }).model_data.tokenizer_id;
    };
    expect(await info("http://localhost:8642")).toBe(defaultModel.path);
    expect(await info("http://trainer.example:8642")).toBe(fakeModel.name);
    await backend.close();
  });
});
