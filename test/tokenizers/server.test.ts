import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RestClient, ServiceClient } from "../../src/index.js";
import type { BaseModelInfo } from "../../src/local/engine/engine.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { HOSTED_BASE_URL } from "../../src/transport/index.js";
import { FakeEngine, fakeModel } from "../local/fake-engine.js";
import { silent } from "../local/raw-client.js";
import { type FakeHub, startFakeHub } from "./fake-hub.js";
import { readFiles, writeFolder } from "./fixtures.js";

class EngineOf extends FakeEngine {
  readonly served: BaseModelInfo[];

  constructor(models: Readonly<Record<string, string>>) {
    super();
    this.served = Object.entries(models).map(([name, tokenizerPath]) => ({
      ...fakeModel,
      name,
      tokenizerPath,
    }));
  }

  override async models(): Promise<BaseModelInfo[]> {
    return this.served;
  }

  override async createAdapter(): Promise<void> {}
}

/** A server with these models, by the folder of their tokenizer, that notes who asked it for a tokenizer. */
async function serve(models: Readonly<Record<string, string>>, answer?: () => Response | undefined) {
  const backend = await startLocalBackend({ engine: new EngineOf(models), logger: silent, listen: false });
  const asked: string[] = [];
  const fetch: LocalBackend["fetch"] = async (input, init) => {
    const url = new URL(String(input));
    if (!url.pathname.endsWith("/api/v1/tokenizer")) return backend.fetch(input, init);
    asked.push(url.searchParams.get("model") ?? "");
    return answer?.() ?? backend.fetch(input, init);
  };
  const client = { baseURL: backend.baseURL, apiKey: backend.apiKey, fetch, maxRetries: 0 };
  return { client, asked, [Symbol.asyncDispose]: () => backend.close() };
}

describe("a tokenizer from the server", () => {
  let cacheFolder: string;
  let qwen: string;
  let hub: FakeHub;
  beforeAll(async () => {
    cacheFolder = mkdtempSync(join(tmpdir(), "tinkerts-cache-"));
    qwen = writeFolder(readFiles("qwen3"));
    hub = await startFakeHub(readFiles("nano"));
  });
  afterAll(async () => {
    for (const folder of [cacheFolder, qwen]) rmSync(folder, { recursive: true });
    await hub.close();
  });
  const noHub = () => ({ cacheFolder, endpoint: "http://127.0.0.1:9" });

  it("is that of a model under a name of its own, asked for once by all clients", async () => {
    await using server = await serve({ mine: defaultModel.path });
    await using service = new ServiceClient(server.client);
    const sampler = await service.createSamplingClient({ baseModel: "mine" });
    const tokenizer = await sampler.getTokenizer(noHub());
    expect(tokenizer.name).toBe("mine");
    expect(tokenizer.decode(tokenizer.encode("naïve 😀"))).toBe("naïve 😀");
    expect(tokenizer.hasChatTemplate).toBe(true);
    const training = await service.createLoraTrainingClient({ baseModel: "mine" });
    expect(await training.getTokenizer(noHub())).toBe(tokenizer);
    expect(await service.getTokenizer("mine", noHub())).toBe(tokenizer);
    await using rest = new RestClient(server.client);
    expect(await rest.getTokenizer("mine", noHub())).toBe(tokenizer);
    expect(server.asked).toEqual(["mine"]);
  });

  it("is another one on another server, though both are called the same", async () => {
    await using first = await serve({ mine: defaultModel.path });
    await using second = await serve({ mine: qwen });
    await using one = new ServiceClient(first.client);
    await using two = new ServiceClient(second.client);
    const tokens = await Promise.all(
      [one, two].map(async (service) => (await service.getTokenizer("mine", noHub())).encode("hello")),
    );
    expect(tokens[0]).not.toEqual(tokens[1]);
  });

  it("is not asked for where it is at hand, and never of the hosted service", async () => {
    await using server = await serve({ "tinkerts/nano": defaultModel.path, "org/model": qwen });
    await using service = new ServiceClient(server.client);
    expect((await service.getTokenizer("tinkerts/nano", noHub())).name).toBe("tinkerts/nano");
    await service.getTokenizer("org/model", { cacheFolder, endpoint: hub.endpoint, revision: "main" });
    expect((await service.getTokenizer("org/model", noHub())).name).toBe("org/model");
    const ownBase = server.client.baseURL;
    const hosted = {
      ...server.client,
      baseURL: HOSTED_BASE_URL,
      fetch: ((input, init) =>
        server.client.fetch(String(input).replace(HOSTED_BASE_URL, ownBase), init)) as typeof fetch,
    };
    await using client = new ServiceClient(hosted);
    await expect(client.getTokenizer("org/other", noHub())).rejects.toThrow(
      /^The tokenizer of org\/other could not be loaded\. http:\/\/127\.0\.0\.1:9\S* could not be reached/,
    );
    expect(server.asked).toEqual([]);
  });

  it.each([
    ["a server without the question", () => new Response('{"detail":"Not Found"}', { status: 404 })],
    ["one that answers everything with a page", () => new Response("<html>")],
  ])("comes from the hub with %s, which is asked once", async (_, answer) => {
    await using server = await serve({ "org/model": qwen }, answer);
    await using service = new ServiceClient(server.client);
    const folder = mkdtempSync(join(tmpdir(), "tinkerts-cache-"));
    const options = { cacheFolder: folder, endpoint: hub.endpoint };
    const tokenizer = await service.getTokenizer("org/model", options);
    expect(tokenizer.decode(tokenizer.encode("hi"))).toBe("hi");
    expect(await service.getTokenizer("org/model", options)).toBe(tokenizer);
    expect(server.asked).toEqual(["org/model"]);
    rmSync(folder, { recursive: true });
  });

  it("that is nowhere is an error that names the hub, the cache and the server", async () => {
    await using server = await serve({ mine: join(qwen, "none") });
    await using service = new ServiceClient(server.client);
    await expect(service.getTokenizer("mine", noHub())).rejects.toThrow(
      /127\.0\.0\.1:9.*could not be reached.*not in the cache either \(.*models--mine.*The server at http:\/\/localhost was asked for it first: it answered with status 404\./,
    );
  });

  it("that is damaged is an error, and is asked for again", async () => {
    let isDamaged = true;
    const cut = () => (isDamaged ? new Response(Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0)) : undefined);
    await using server = await serve({ mine: defaultModel.path }, cut);
    await using service = new ServiceClient(server.client);
    await expect(service.getTokenizer("mine", noHub())).rejects.toThrow(
      /^The tokenizer of mine that http:\/\/localhost sent cannot be read: /,
    );
    isDamaged = false;
    expect((await service.getTokenizer("mine", noHub())).encode("a").length).toBe(1);
  });

  it("is given up by a signal, for its caller alone", async () => {
    await using server = await serve({ mine: defaultModel.path });
    await using service = new ServiceClient(server.client);
    const abort = new AbortController();
    const given = service.getTokenizer("mine", { ...noHub(), signal: abort.signal });
    const other = service.getTokenizer("mine", noHub());
    abort.abort();
    await expect(given).rejects.toThrow(/aborted/);
    expect((await other).name).toBe("mine");
  });
});
