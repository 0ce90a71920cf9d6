import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import {
  type ChatDelta,
  chat,
  chatStream,
  isContextOverflow,
  rendererOf,
} from "../../src/cookbook/chat/index.js";
import { ServiceClient, UnprocessableEntityError, ValidationError } from "../../src/index.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { getRenderer, type Message, registerRenderer } from "../../src/renderers/index.js";
import { sampledServerForTests, TalkingEngine, talkingServer } from "../cli/talking-engine.js";

const user = (content: string): Message => ({ role: "user", content });
const turn = (role: string, content: string) => `<|im_start|>${role}\n${content}<|im_end|>\n`;
const asked = (...turns: string[]) => `${turns.join("")}<|im_start|>assistant\n`;

const { server, service, sampler } = await sampledServerForTests();

describe("chat", () => {
  it("returns a message with the tokens and logprobs that it was read from", async () => {
    server.engine.answers = ["Hello."];
    const answer = await chat(sampler, [{ role: "system", content: "Be kind." }, user("Hi!")]);
    expect(answer).toMatchObject({
      message: { role: "assistant", content: "Hello." },
      text: "Hello.",
      termination: "stop_sequence",
      stopReason: "stop",
    });
    const tokenizer = await sampler.getTokenizer();
    expect(tokenizer.decode(answer.tokens)).toBe("Hello.<|im_end|>");
    expect(answer.logprobs).toHaveLength(answer.tokens.length);
    expect(tokenizer.decode(answer.prompt.toInts())).toBe(server.engine.heard[0]);
    expect(server.engine.heard).toEqual([asked(turn("system", "Be kind."), turn("user", "Hi!"))]);
    // As much as there is room for, and the format's own stop sign.
    expect(server.engine.requests[0]).toMatchObject({
      stopTokens: [511],
      temperature: 1,
      maxTokens: 513 - answer.prompt.length,
    });
  });

  it("passes on how to sample, and gives every sample that was asked for", async () => {
    server.engine.answers = ["one", "two"];
    const settings = { numSamples: 2, maxTokens: 40, temperature: 0.5, topK: 7, topP: 0.9, seed: 3 };
    const { text, samples } = await chat(sampler, [user("?")], { ...settings, stop: ["\n\n"] });
    expect(text).toBe("one");
    expect(samples.map((sample) => sample.text)).toEqual(["one", "two"]);
    expect(server.engine.requests[0]).toMatchObject({ ...settings, stopStrings: ["\n\n"] });
  });

  it("says that an answer was cut off, and keeps what there is of it", async () => {
    server.engine.answers = ["123456"];
    expect(await chat(sampler, [user("?")], { maxTokens: 3 })).toMatchObject({
      text: "123",
      stopReason: "length",
      termination: "malformed",
    });
  });

  it("reads an answer up to its stop sign, where the caller's own stop let the model go on", async () => {
    server.engine.answers = ["yes<|im_end|>\n<|im_start|>user\nmore"];
    expect(await chat(sampler, [user("?")], { stop: "###" })).toMatchObject({
      text: "yes",
      termination: "stop_sequence",
    });
  });

  it("begins with the prefill, which is part of the message and not of the sampled tokens", async () => {
    server.engine.answers = ["is Paris."];
    const answer = await chat(sampler, [user("?")], { prefill: "It " });
    expect(answer.text).toBe("It is Paris.");
    expect((await sampler.getTokenizer()).decode(answer.tokens)).toBe("is Paris.<|im_end|>");
    expect(server.engine.heard).toEqual([`${asked(turn("user", "?"))}It `]);
  });

  it("takes a renderer by name or as an object", async () => {
    server.engine.answers = [" Blue.\n\nUser:", " Blue.\n\nUser:"];
    const named = await chat(sampler, [user("Which?")], { renderer: "role_colon" });
    const renderer = getRenderer("role_colon", await sampler.getTokenizer());
    const given = await chat(sampler, [user("Which?")], { renderer });
    expect(named.text).toBe("Blue.");
    expect(given.text).toBe("Blue.");
    expect(server.engine.heard[0]).toMatch(/User: Which\?\n\nAssistant:$/);
    expect(server.engine.heard[1]).toBe(server.engine.heard[0]);
    expect(server.engine.requests[0]).toMatchObject({ stopStrings: ["\n\nUser:"] });
  });

  it("declares tools together with the system message", async () => {
    const tokenizer = await sampler.getTokenizer();
    const renderer = getRenderer("role_colon", tokenizer);
    renderer.declareTools = (tools, system = "") => [
      { role: "system", content: `${system}[${tools.map(({ name }) => name).join()}]` },
    ];
    const tools = [{ name: "add", description: "adds", parameters: {} }];
    await chat(sampler, [{ role: "system", content: "Be kind." }, user("?")], { renderer, tools });
    await chat(sampler, [user("?")], { renderer, tools });
    expect(server.engine.heard.map((text) => text.split("\n\n")[0])).toEqual([
      expect.stringMatching(/System: Be kind\.\[add\]$/),
      expect.stringMatching(/System: \[add\]$/),
    ]);
    await expect(chat(sampler, [user("?")], { renderer: "role_colon", tools })).rejects.toThrow(
      "This renderer's format has no tools.",
    );
  });

  it("names the field of what it cannot take", async () => {
    await expect(chat(sampler, [])).rejects.toThrow("messages must be a list of at least one message");
    await expect(chat(sampler, [{ role: "", content: "" }])).rejects.toThrow("messages[0].role must be");
    await expect(chat(sampler, [{ role: "user" } as never])).rejects.toThrow("messages[0].content must be");
    await expect(chat(sampler, [user("?")], { maxToken: 3 } as never)).rejects.toThrow(
      "did you mean maxTokens?",
    );
    await expect(chat(sampler, [user("?")], { renderer: "nonsense" })).rejects.toThrow(ValidationError);
    await expect(chat(sampler, [user("?")], { temperature: -1 })).rejects.toThrow("temperature");
    expect(server.engine.requests).toEqual([]);
  });

  it("gets a context overflow in the server's words", async () => {
    const failure = await chat(sampler, [user("word ".repeat(600))]).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(UnprocessableEntityError);
    expect(String(failure)).toMatch(/has \d+ tokens; tinkerts\/nano reads at most 512/);
    expect(isContextOverflow(failure)).toBe(true);
    const tooMany = await chat(sampler, [user("?")], { maxTokens: 5000 }).catch((error: unknown) => error);
    expect(isContextOverflow(tooMany)).toBe(true);
    expect(isContextOverflow(new Error("context window"))).toBe(false);
  });

  it("is given up by its signal", async () => {
    server.engine.hold();
    const controller = new AbortController();
    const answer = chat(sampler, [user("?")], { signal: controller.signal });
    await expect.poll(() => server.engine.requests.length).toBe(1);
    controller.abort();
    await expect(answer).rejects.toThrow(/abort/i);
    server.engine.open();
  });
});

describe("chatStream", () => {
  it("gives text while the rest is still being drawn", async () => {
    server.engine.answers = ["12 is what I say."];
    server.engine.saysBefore = 2;
    server.engine.hold();
    try {
      const deltas = chatStream(sampler, [user("Hi!")]);
      const early = [];
      while (early.join("") !== "12") {
        const { value } = await deltas.next();
        if (value?.type === "text") early.push(value.text);
      }
      server.engine.open();
      let last: ChatDelta | undefined;
      for await (const delta of deltas) last = delta;
      expect(last).toMatchObject({ type: "message", text: "12 is what I say." });
    } finally {
      server.engine.saysBefore = 0;
      server.engine.open();
    }
  });

  it("makes the server stop where its loop is left", async () => {
    server.engine.answers = ["12 is what I say."];
    server.engine.saysBefore = 2;
    server.engine.hold();
    server.engine.calls.length = 0;
    try {
      for await (const delta of chatStream(sampler, [user("Hi!")])) if (delta.type === "text") break;
      await vi.waitFor(() =>
        expect(server.engine.calls).toContainEqual(expect.stringMatching(/^cancel .*stream-/)),
      );
    } finally {
      server.engine.saysBefore = 0;
      server.engine.open();
    }
  });

  it("gives text and thoughts as they come, and the whole answer last", async () => {
    server.engine.answers = ["<think>Hm.</think>Hello."];
    const deltas: ChatDelta[] = [];
    for await (const delta of chatStream(sampler, [user("Hi!")])) deltas.push(delta);
    const last = deltas.pop()!;
    const said = (type: "text" | "thinking") =>
      deltas.map((delta) => (delta.type === type ? (delta as never)[type] : "")).join("");
    expect(deltas[0]).toEqual({ type: "header", role: "assistant" });
    expect(said("thinking")).toBe("Hm.");
    expect(said("text")).toBe("Hello.");
    server.engine.answers = ["<think>Hm.</think>Hello."];
    const answer = await chat(sampler, [user("Hi!")]);
    expect(last).toEqual({ type: "message", ...answer, samples: [expect.anything()] });
    expect(answer).toMatchObject({ text: "Hello.", termination: "stop_sequence" });
  });

  const expectStreamed = async (options: Parameters<typeof chatStream>[2], text: string) => {
    const texts: string[] = [];
    for await (const delta of chatStream(sampler, [user("?")], options)) {
      if (delta.type === "text") texts.push(delta.text);
      if (delta.type === "message") expect(delta.text).toBe(text);
    }
    expect(texts.join("")).toBe(text);
  };

  it("ends at a stop text, however its tokens come", async () => {
    server.engine.answers = [" One.\n\nUs two.\n\nUser:"];
    await expectStreamed({ renderer: "role_colon" }, "One.\n\nUs two.");
  });

  it("begins with the prefill", async () => {
    server.engine.answers = ["is Paris."];
    await expectStreamed({ prefill: "It " }, "It is Paris.");
  });
});

describe("the renderer of a sampler", () => {
  it("is looked up once", async () => {
    const own = await service.createSamplingClient({ baseModel: "tinkerts/nano" });
    const asks = vi.spyOn(own, "getBaseModel");
    const renderer = await rendererOf(own);
    expect(await rendererOf(own)).toBe(renderer);
    await chat(own, [user("?")]);
    // Once for the name, once for the tokenizer.
    expect(asks.mock.calls.length).toBeLessThanOrEqual(2);
  });

  it("is one that was registered under the recommended name", async () => {
    const own = await service.createSamplingClient({ baseModel: "tinkerts/nano" });
    const mine = getRenderer("role_colon", await own.getTokenizer());
    const remove = registerRenderer("qwen3_instruct", () => mine);
    try {
      expect(await rendererOf(own)).toBe(mine);
    } finally {
      remove();
    }
  });

  it("is the chat template of a model that no table knows, and a sentence where there is none", async () => {
    const folder = mkdtempSync(join(tmpdir(), "tinkerts-hub-"));
    vi.stubEnv("HF_HUB_CACHE", folder);
    vi.stubEnv("HF_HUB_OFFLINE", "1");
    try {
      for (const [name, settings] of [
        ["templated", readFileSync(join(defaultModel.path, "tokenizer_config.json"), "utf8")],
        ["plain", "{}"],
      ] as const) {
        const snapshot = join(folder, `models--test--${name}/snapshots/abc`);
        mkdirSync(snapshot, { recursive: true });
        mkdirSync(join(folder, `models--test--${name}/refs`));
        writeFileSync(join(folder, `models--test--${name}/refs/main`), "abc");
        writeFileSync(
          join(snapshot, "tokenizer.json"),
          readFileSync(join(defaultModel.path, "tokenizer.json")),
        );
        writeFileSync(join(snapshot, "tokenizer_config.json"), settings);
      }
      const ask = async (name: string) => {
        const other = await talkingServer(new TalkingEngine(`test/${name}`));
        await using otherService = new ServiceClient(other.backend);
        const own = await otherService.createSamplingClient({ baseModel: `test/${name}` });
        return await chat(own, [user("?")])
          .then(({ text }) => ({ text, heard: other.engine.heard }))
          .finally(() => other.backend.close());
      };
      expect(await ask("templated")).toEqual({ text: "yes", heard: [asked(turn("user", "?"))] });
      await expect(ask("plain")).rejects.toThrow(/^test\/plain has no chat format: .* Name a renderer/);
    } finally {
      vi.unstubAllEnvs();
      rmSync(folder, { recursive: true });
    }
  });
});

describe("with the real model", () => {
  let backend: LocalBackend;
  beforeAll(async () => {
    backend = await startLocalBackend({ threads: 1, listen: false });
  });
  afterAll(() => backend.close());

  it("talks", async () => {
    await using real = new ServiceClient({ ...backend });
    const nano = await real.createSamplingClient({ baseModel: "tinkerts/nano" });
    const answer = await chat(nano, [user("What is the capital of France?")], { temperature: 0 });
    expect(answer).toMatchObject({
      message: { role: "assistant", content: "The capital of France is Paris." },
      termination: "stop_sequence",
    });
    const sum = answer.logprobs!.reduce((total, logprob) => total + logprob, 0);
    expect(Math.exp(sum)).toBeGreaterThan(0.5);
  });
});
