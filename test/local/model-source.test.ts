import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { resolveModel } from "../../src/local/model-source.js";

const files: Record<string, string> = {
  "config.json": '{"model_type":"qwen3"}',
  "model.safetensors": "weights",
  "tokenizer.json": "{}",
  "README.md": "not needed",
  "pytorch_model.bin": "not needed",
};

describe("a model", () => {
  let folder: string;
  let hub: Server;
  let asked: string[];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-model-"));
    asked = [];
    hub = createServer((request, response) => {
      const url = new URL(request.url ?? "/", "http://hub");
      asked.push(`${request.method} ${url.pathname}`);
      void text(request).then((body) => answer(url.pathname, body, request.headers.range, response));
    });
    await new Promise<void>((resolve) => hub.listen(0, "127.0.0.1", resolve));
    vi.stubEnv("HF_ENDPOINT", `http://127.0.0.1:${(hub.address() as AddressInfo).port}`);
    vi.stubEnv("HF_HUB_CACHE", join(folder, "cache"));
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    hub.closeAllConnections();
    await new Promise((resolve) => hub.close(resolve));
    await rm(folder, { recursive: true });
  });

  it("may be a folder, named after itself or as told", async () => {
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

  it("of the hub is downloaded once, without the files nobody reads", async () => {
    const { name, path } = await resolveModel("some-org/some-model");
    expect(name).toBe("some-org/some-model");
    expect(await readFile(join(path, "model.safetensors"), "utf8")).toBe("weights");
    expect(await readFile(join(path, "config.json"), "utf8")).toBe(files["config.json"]);
    expect(asked.join("\n")).not.toMatch(/README|pytorch_model/);
    asked.length = 0;
    expect(await resolveModel("some-org/some-model@main")).toEqual({ name, path });
    expect(asked).toEqual([]);
  });

  it("that the hub does not have is an error which names it", async () => {
    await expect(resolveModel("some-org/missing")).rejects.toThrow(
      /some-org\/missing could not be downloaded/,
    );
  });
});

const COMMIT = "0123456789012345678901234567890123456789";

/** As much of the hub as a download asks of it. */
function answer(path: string, body: string, range: string | undefined, response: ServerResponse): void {
  const api = "/api/models/some-org/some-model";
  const infoOf = (name: string) => ({
    type: "file",
    oid: name.replace(/\W/g, "").padStart(40, "a"),
    size: files[name]!.length,
    path: name,
    // Every file was last changed by a commit of its own.
    lastCommit: {
      id: name.length.toString().padStart(40, "b"),
      title: "t",
      date: "2026-01-01T00:00:00.000Z",
    },
  });
  const json = (value: unknown) =>
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
  if (path === `${api}/revision/main`) {
    json({ sha: COMMIT, siblings: Object.keys(files).map((rfilename) => ({ rfilename })) });
  } else if (path === `${api}/paths-info/${COMMIT}`) {
    json((JSON.parse(body) as { paths: string[] }).paths.map(infoOf));
  } else if (path.startsWith(`/some-org/some-model/resolve/${COMMIT}/`)) {
    const name = path.split("/").at(-1)!;
    const content = files[name]!;
    const headers = { etag: `"${infoOf(name).oid}"`, "x-repo-commit": COMMIT };
    if (range === "bytes=0-0") {
      const contentRange = `bytes 0-0/${content.length}`;
      response.writeHead(206, { ...headers, "content-range": contentRange }).end(content.slice(0, 1));
    } else {
      response.writeHead(200, { ...headers, "content-length": String(content.length) }).end(content);
    }
  } else {
    response.writeHead(404).end("{}");
  }
}
