import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { type Json, RawClient, silent } from "./raw-client.js";

class EngineWithTokenizer extends FakeEngine {
  override async models() {
    const tokenizerPath = fileURLToPath(new URL("../../models/nano", import.meta.url));
    return [{ ...fakeModel, vocabSize: 512, tokenizerPath }];
  }
}

describe("the OpenAI-compatible door", () => {
  let backend: LocalBackend;
  let engine: EngineWithTokenizer;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-openai-"));
    engine = new EngineWithTokenizer();
    backend = await startLocalBackend({ engine, listen: false, logger: silent, apiKeys: ["tml-one"] });
  });
  afterAll(async () => {
    await backend.close();
    await rm(folder, { recursive: true });
  });

  const send = async (path: string, body?: Json, key = "tml-one") =>
    backend.fetch(`${backend.baseURL}/oai/api/v1${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

  it("completes chats in the model's own format", async () => {
    const messages = [{ role: "user", content: "Hi" }];
    const response = await send("/chat/completions", {
      model: fakeModel.name,
      messages,
      max_tokens: 3,
      n: 2,
    });
    const body = (await response.json()) as { choices: Json[]; usage: Record<string, number> };
    expect(body).toMatchObject({ object: "chat.completion", model: fakeModel.name });
    expect(body.choices).toMatchObject([
      { index: 0, message: { role: "assistant", content: expect.any(String) }, finish_reason: "length" },
      { index: 1 },
    ]);
    expect(body.usage["completion_tokens"]).toBe(6);
    // <|im_start|> is where a message begins.
    expect(engine.calls.at(-1)).toBe("sample 510");
  });

  it("completes text from a checkpoint, and streams", async () => {
    const client = new RawClient(backend, { "x-api-key": "tml-one" });
    const { modelId } = await client.openModel();
    const saved = await client.result(
      client.ok("/save_weights_for_sampler", { model_id: modelId, seq_id: 1, path: "s" }),
    );
    const plain = await send("/completions", { model: saved["path"], prompt: "one", max_tokens: 2 });
    expect(await plain.json()).toMatchObject({
      object: "text_completion",
      choices: [{ text: expect.any(String) }],
    });
    const stream = await send("/completions", {
      model: saved["path"],
      prompt: [1, 2],
      max_tokens: 2,
      stream: true,
    });
    expect(stream.headers.get("content-type")).toBe("text/event-stream");
    const events = (await stream.text()).trim().split("\n\n");
    expect(events.at(-1)).toBe("data: [DONE]");
    expect(JSON.parse(events[1]!.slice(6))).toMatchObject({ choices: [{ finish_reason: "length" }] });
  });

  it("lists models and explains what is wrong as OpenAI clients expect", async () => {
    expect(await (await send("/models")).json()).toMatchObject({ data: [{ id: fakeModel.name }] });
    const unknown = await send("/chat/completions", {
      model: "gpt-4",
      messages: [{ role: "user", content: "x" }],
    });
    expect([unknown.status, await unknown.json()]).toMatchObject([
      422,
      { error: { message: expect.stringContaining("gpt-4") } },
    ]);
    expect((await send("/models", undefined, "tml-wrong")).status).toBe(401);
  });
});
