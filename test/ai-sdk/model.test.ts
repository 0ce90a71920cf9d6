import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { createTinkerts, readAnswerMetadata, tinkertsModel } from "../../src/ai-sdk/index.js";
import { chat } from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/index.js";
import { sampledServerForTests, TalkingEngine, talkingServer } from "../cli/talking-engine.js";
import { MAJORS } from "./majors.js";

const turn = (role: string, content: string) => `<|im_start|>${role}\n${content}<|im_end|>\n`;
const asked = (...turns: string[]) => `${turns.join("")}<|im_start|>assistant\n`;
const PNG = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);

const { server, service, sampler } = await sampledServerForTests();

const callText = (house: number) =>
  `<tool_call>\n{"name": "ask", "arguments": {"house": ${house}}}\n</tool_call>`;

describe.each(MAJORS)("%s", (_, { generateText, streamText, stepCountIs, tool, wrapLanguageModel }) => {
  const ask = tool({
    description: "Who lives in a house",
    inputSchema: z.object({ house: z.number() }),
    execute: ({ house }) => ({ name: `Ada of ${house}` }),
  });
  /** The declaration of a tool is longer than the model's context. */
  const model = () => tinkertsModel(sampler, { declareTools: false });

  describe("generateText", () => {
    it("answers, with the tokens and logprobs of the answer, what it cost and why it ended", async () => {
      server.engine.answers = ["Hello."];
      const result = await generateText({
        model: tinkertsModel(sampler, { modelId: "mine" }),
        system: "Be kind.",
        prompt: "Hi!",
        maxOutputTokens: 40,
        temperature: 0.5,
        topK: 7,
        topP: 0.9,
        seed: 3,
      });
      expect(result).toMatchObject({ text: "Hello.", finishReason: "stop", rawFinishReason: "stop" });
      expect(result.response).toMatchObject({ id: expect.any(String), modelId: "mine" });
      expect(result.warnings ?? []).toEqual([]);
      expect(server.engine.heard).toEqual([asked(turn("system", "Be kind."), turn("user", "Hi!"))]);
      expect(server.engine.requests[0]).toMatchObject({
        maxTokens: 40,
        temperature: 0.5,
        topK: 7,
        topP: 0.9,
        seed: 3,
        stopTokens: [511],
      });
      const tokenizer = await sampler.getTokenizer();
      const { promptTokens, tokens, logprobs, stopReason } = readAnswerMetadata(result.providerMetadata)!;
      expect(tokenizer.decode(promptTokens!)).toBe(server.engine.heard[0]);
      expect(tokenizer.decode(tokens)).toBe("Hello.<|im_end|>");
      expect(logprobs).toEqual(tokens.map((_token, index) => -0.5 * (index + 1)));
      expect(stopReason).toBe("stop");
      expect(result.usage).toMatchObject({
        inputTokens: promptTokens!.length,
        outputTokens: tokens.length,
        outputTokenDetails: { textTokens: tokens.length, reasoningTokens: 0 },
      });
    });

    it("says that an answer was cut off, and shows thoughts that were cut off as thoughts", async () => {
      server.engine.answers = ["<think>\nLet me think about it</think>"];
      const result = await generateText({ model: model(), prompt: "?", maxOutputTokens: 9 });
      expect(result).toMatchObject({ finishReason: "length", text: "" });
      expect("Let me think about it").toContain(result.reasoningText);
      expect(result.reasoningText).not.toBe("");
    });

    it("tells thoughts from text", async () => {
      server.engine.answers = ["<think>\nHm.\n</think>\n\nHello."];
      const result = await generateText({ model: model(), prompt: "Hi!" });
      expect(result).toMatchObject({ text: "Hello.", reasoningText: "Hm." });
      expect(result.usage.outputTokenDetails.reasoningTokens).toBeGreaterThan(0);
    });

    it("calls tools and goes on with their results", async () => {
      server.engine.answers = [`Let me see.\n${callText(2)}\n${callText(3)}`, "Ada does."];
      const result = await generateText({
        model: model(),
        prompt: "Who?",
        tools: { ask },
        stopWhen: stepCountIs(3),
      });
      const [first] = result.steps;
      expect(first).toMatchObject({
        finishReason: "tool-calls",
        rawFinishReason: "stop",
        text: "Let me see.",
      });
      expect(first!.toolCalls.map(({ toolName, input }) => ({ toolName, input }))).toEqual([
        { toolName: "ask", input: { house: 2 } },
        { toolName: "ask", input: { house: 3 } },
      ]);
      expect(new Set(first!.toolCalls.map(({ toolCallId }) => toolCallId)).size).toBe(2);
      expect(result.text).toBe("Ada does.");
      const results = [2, 3].map((house) => `<tool_response>\n{"name":"Ada of ${house}"}\n</tool_response>`);
      expect(server.engine.heard[1]).toBe(
        asked(
          turn("user", "Who?"),
          turn("assistant", `Let me see.\n${callText(2)}\n${callText(3)}`),
          turn("user", results.join("\n")),
        ),
      );
    });

    it("declares tools in the model's format, next to the system message", async () => {
      const noInput = tool({ description: "", inputSchema: z.object({ a: z.number() }), execute: () => "" });
      await generateText({
        model: tinkertsModel(sampler),
        system: "Be kind.",
        prompt: "?",
        tools: { f: noInput },
        maxOutputTokens: 9,
      });
      expect(server.engine.heard[0]).toMatch(/^<\|im_start\|>system\nBe kind\.\n\n# Tools\n/);
      expect(server.engine.heard[0]).toContain('{"type": "function", "function": {"name": "f", ');
      expect(server.engine.heard[0]).not.toContain("$schema");
    });

    it("leaves what cannot be read as a call, or was not asked for, as text", async () => {
      server.engine.answers = ["<tool_call>\n{broken\n</tool_call>", callText(1), callText(2)];
      const unread = await generateText({ model: model(), prompt: "?", tools: { ask } });
      expect(unread).toMatchObject({
        text: "<tool_call>\n{broken\n</tool_call>",
        finishReason: "stop",
        toolCalls: [],
      });
      const without = await generateText({ model: model(), prompt: "?" });
      expect(without).toMatchObject({ text: callText(1), toolCalls: [] });
      const none = await generateText({ model: model(), prompt: "?", tools: { ask }, toolChoice: "none" });
      expect(none).toMatchObject({ text: callText(2), toolCalls: [] });
    });

    it("begins the call that must come", async () => {
      server.engine.answers = ['{"house": 4}}\n</tool_call>', '{"house": 5}}\n</tool_call>'];
      const opening = '<tool_call>\n{"name": "ask", "arguments": ';
      for (const [house, toolChoice] of [
        [4, "required"],
        [5, { type: "tool", toolName: "ask" }],
      ] as const) {
        const result = await generateText({ model: model(), prompt: "?", tools: { ask }, toolChoice });
        expect(result).toMatchObject({ finishReason: "tool-calls", toolCalls: [{ input: { house } }] });
        expect(server.engine.heard.at(-1)).toBe(asked(turn("user", "?")) + opening);
      }
    });

    it("says where a call cannot be begun", async () => {
      const thinking = tinkertsModel(sampler, { renderer: "qwen3_5", declareTools: false });
      await expect(
        generateText({ model: thinking, prompt: "?", tools: { ask }, toolChoice: "required" }),
      ).rejects.toThrow("toolChoice cannot be forced with a sampling client");
      expect(server.engine.requests).toEqual([]);
    });

    it("ends before the caller's stop texts, and at the end of a turn", async () => {
      server.engine.answers = ["one ### two"];
      const result = await generateText({ model: model(), prompt: "?", stopSequences: ["###"] });
      expect(result.text).toBe("one ");
      expect(server.engine.requests[0]).toMatchObject({ stopStrings: ["<|im_end|>", "###"] });
    });

    it("warns of what it does not do", async () => {
      const { warnings } = await generateText({
        model: model(),
        prompt: "?",
        presencePenalty: 0.5,
        frequencyPenalty: 1,
        providerOptions: { tinkerts: { reasoningEffort: "high" } },
      });
      expect(warnings).toEqual([
        expect.objectContaining({ type: "unsupported", feature: "presencePenalty" }),
        expect.objectContaining({ type: "unsupported", feature: "frequencyPenalty" }),
        expect.objectContaining({ feature: "reasoning", details: expect.stringContaining("tinkerts/nano") }),
      ]);
    });

    it("names what it cannot take", async () => {
      const file = (mediaType: string, data: Uint8Array) =>
        generateText({
          model: model(),
          messages: [{ role: "user", content: [{ type: "file", mediaType, data }] }],
        });
      await expect(file("application/pdf", Uint8Array.of(1, 2, 3))).rejects.toThrow(
        "The prompt has a file (application/pdf)",
      );
      await expect(file("image/png", PNG)).rejects.toThrow("Qwen3's text models take no images");
      const withOption = (tinkerts: Record<string, string>) =>
        generateText({ model: model(), prompt: "?", providerOptions: { tinkerts } });
      await expect(withOption({ effort: "low" })).rejects.toThrow(
        "unknown field providerOptions.tinkerts.effort",
      );
      await expect(withOption({ reasoningEffort: "much" })).rejects.toThrow(
        'providerOptions.tinkerts.reasoningEffort must be "none", "minimal", "low"',
      );
      await expect(generateText({ model: model(), prompt: "?", maxOutputTokens: 5000 })).rejects.toThrow(
        "tinkerts/nano",
      );
    });

    it("is given up by its signal", async () => {
      server.engine.hold();
      const controller = new AbortController();
      const answer = generateText({ model: model(), prompt: "?", abortSignal: controller.signal });
      await expect.poll(() => server.engine.requests.length).toBe(1);
      controller.abort();
      await expect(answer).rejects.toMatchObject({ name: "AbortError" });
      server.engine.open();
    });

    it("is a model like any other to middleware", async () => {
      server.engine.answers = ["Hello."];
      const wrapped = wrapLanguageModel({
        model: model(),
        middleware: {
          specificationVersion: "v3",
          transformParams: async ({ params }) => ({ ...params, temperature: 0.25 }),
        },
      } as Parameters<typeof wrapLanguageModel>[0]);
      expect((await generateText({ model: wrapped, prompt: "?" })).text).toBe("Hello.");
      expect(server.engine.requests[0]).toMatchObject({ temperature: 0.25 });
    });
  });

  describe("streamText", () => {
    it("gives thoughts, text and calls in parts, equal to the whole answer", async () => {
      const answers = [
        "<think>\nHm.\n\nSo.\n</think>\n\nLet me\n\nsee.\n",
        `Let me see.\n${callText(2)}\n${callText(3)}`,
        "Just text\n",
        `<tool_call>\n{broken\n</tool_call>`,
      ];
      for (const answer of answers) {
        server.engine.answers = [answer, answer];
        const options = {
          model: model(),
          prompt: "?",
          tools: { ask: { ...ask, execute: undefined } },
        } as never;
        const whole = await generateText(options);
        const result = streamText(options);
        const types: string[] = [];
        for await (const { type } of result.fullStream) types.push(type);
        expect(await result.text).toBe(whole.text);
        expect(await result.reasoningText).toBe(whole.reasoningText);
        expect((await result.toolCalls).map(({ input }) => input)).toEqual(
          whole.toolCalls.map(({ input }) => input),
        );
        expect(await result.finishReason).toBe(whole.finishReason);
        expect(await result.usage).toEqual(whole.usage);
        expect(await result.providerMetadata).toEqual(whole.providerMetadata);
        expect(types.at(-1)).toBe("finish");
      }
    });

    it("opens and closes its parts in order", async () => {
      server.engine.answers = [`<think>Hm.</think>Well.${callText(2)}`];
      const result = await model().doStream({
        prompt: [{ role: "user", content: [{ type: "text", text: "?" }] }],
        tools: [{ type: "function", name: "ask", inputSchema: {} }],
      });
      const types: string[] = [];
      for await (const { type } of result.stream) if (types.at(-1) !== type) types.push(type);
      expect(types).toEqual([
        "stream-start",
        "response-metadata",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "text-start",
        "text-delta",
        "text-end",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-end",
        "tool-call",
        "finish",
      ]);
    });

    it("ends with its signal", async () => {
      server.engine.hold();
      const controller = new AbortController();
      const { fullStream } = streamText({ model: model(), prompt: "?", abortSignal: controller.signal });
      const types: string[] = [];
      const reading = (async () => {
        for await (const { type } of fullStream) types.push(type);
      })();
      await expect.poll(() => server.engine.requests.length).toBe(1);
      controller.abort();
      await reading;
      expect(types.at(-1)).toBe("abort");
      server.engine.open();
    });

    it("ends the server's work when its reader stops", async () => {
      server.engine.hold();
      const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "?" }] }];
      const reader = (await model().doStream({ prompt })).stream.getReader();
      await reader.read();
      await reader.read();
      reader.read().catch(() => {});
      await expect.poll(() => server.engine.requests.length).toBe(1);
      const cancelled = () => server.engine.calls.filter((call) => call.startsWith("cancel")).length;
      const before = cancelled();
      await reader.cancel();
      await expect.poll(cancelled).toBe(before + 1);
      server.engine.open();
    });

    it("tells of an error that the server has", async () => {
      const errors: unknown[] = [];
      const result = streamText({
        model: model(),
        prompt: "word ".repeat(600),
        onError: ({ error }) => {
          errors.push(error);
        },
      });
      await result.consumeStream();
      expect(String(errors[0])).toMatch(/has \d+ tokens; tinkerts\/nano reads at most 512/);
    });
  });
});

describe("the provider", () => {
  it("makes models of names and of paths, and a sampler when one is first asked", async () => {
    const asks: unknown[] = [];
    const tinkerts = createTinkerts({
      service: {
        createSamplingClient: (source) => {
          asks.push(source);
          return service.createSamplingClient(source);
        },
      },
    });
    const model = tinkerts("tinkerts/nano");
    expect(model).toMatchObject({ provider: "tinkerts", modelId: "tinkerts/nano", supportedUrls: {} });
    expect(asks).toEqual([]);
    const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "?" }] }];
    await model.doGenerate({ prompt });
    await tinkerts.languageModel("tinkerts/nano").doGenerate({ prompt });
    expect(asks).toEqual([{ baseModel: "tinkerts/nano" }]);
    const lost = tinkerts("tinker://nobody/sampler_weights/none");
    await expect(lost.doGenerate({ prompt })).rejects.toThrow();
    await expect(lost.doGenerate({ prompt })).rejects.toThrow();
    // What failed is tried again.
    expect(asks.slice(1)).toEqual(Array(2).fill({ modelPath: "tinker://nobody/sampler_weights/none" }));
  });

  it("refuses what it is not", () => {
    expect(() => createTinkerts({ service: undefined as never })).toThrow("service must be a ServiceClient");
    const tinkerts = createTinkerts({ service });
    expect(() => tinkerts("")).toThrow("modelId must be");
    expect(() => tinkerts("a/b", { render: "x" } as never)).toThrow("did you mean renderer?");
    expect(() => tinkerts("a/b", { modelId: "c" } as never)).toThrow("unknown field modelId");
    expect(() => tinkerts.embeddingModel("x")).toThrow("tinkerts has no embedding models");
  });
});

describe("a model that can think", () => {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-hub-"));
  let thinker: Awaited<ReturnType<typeof talkingServer>>;
  let ownService: ServiceClient;
  let model: ReturnType<typeof tinkertsModel>;
  beforeAll(async () => {
    // A name that has several renderers, with nano's tokenizer.
    vi.stubEnv("HF_HUB_CACHE", folder);
    vi.stubEnv("HF_HUB_OFFLINE", "1");
    const snapshot = join(folder, "models--Qwen--Qwen3-8B/snapshots/abc");
    mkdirSync(join(folder, "models--Qwen--Qwen3-8B/refs"), { recursive: true });
    writeFileSync(join(folder, "models--Qwen--Qwen3-8B/refs/main"), "abc");
    cpSync(defaultModel.path, snapshot, { recursive: true });
    thinker = await talkingServer(new TalkingEngine("Qwen/Qwen3-8B"));
    ownService = new ServiceClient(thinker.backend);
    model = createTinkerts({ service: ownService })("Qwen/Qwen3-8B", { declareTools: false });
  });
  afterAll(async () => {
    await ownService.close();
    await thinker.backend.close();
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  });

  it.each(MAJORS)("is told how much to think with %s", async (name, { generateText }) => {
    const ask = async (options: object) => {
      const { warnings } = await generateText({ model, prompt: "?", ...options });
      expect(warnings ?? []).toEqual([]);
      return thinker.engine.heard.at(-1);
    };
    const thinking = asked(turn("user", "?"));
    const quiet = `${thinking}<think>\n\n</think>\n\n`;
    expect(await ask({})).toBe(thinking);
    const own = (reasoningEffort: string) => ({ providerOptions: { tinkerts: { reasoningEffort } } });
    expect(await ask(own("none"))).toBe(quiet);
    expect(await ask(own("high"))).toBe(thinking);
    if (name === "ai 7") expect(await ask({ reasoning: "none" })).toBe(quiet);
  });

  it("gets the same tokens of one conversation through every API", async () => {
    const name = "Qwen/Qwen3-8B";
    const messages = [
      { role: "user" as const, content: "One?" },
      { role: "assistant" as const, content: "Two." },
      { role: "user" as const, content: "Three?" },
    ];
    const withSystem = [{ role: "system" as const, content: "Count." }, ...messages];
    const { baseURL, fetch } = thinker.backend;
    const post = async (path: string, body: object) => {
      const headers = { "content-type": "application/json" };
      const response = await fetch(baseURL + path, { method: "POST", headers, body: JSON.stringify(body) });
      expect(response.status).toBe(200);
    };
    thinker.engine.heard.length = 0;
    await post("/v1/chat/completions", { model: name, messages: withSystem, reasoning_effort: "none" });
    const thinking = { type: "disabled" };
    await post("/anthropic/v1/messages", {
      model: name,
      system: "Count.",
      messages,
      thinking,
      max_tokens: 20,
    });
    for (const [, { generateText }] of MAJORS) {
      const providerOptions = { tinkerts: { reasoningEffort: "none" } };
      await generateText({ model, system: "Count.", messages, providerOptions });
    }
    const sampler = await ownService.createSamplingClient({ baseModel: name });
    await chat(sampler, withSystem, { renderer: "qwen3_disable_thinking" });
    const turns = withSystem.map(({ role, content }) => turn(role, content));
    expect(new Set(thinker.engine.heard)).toEqual(new Set([`${asked(...turns)}<think>\n\n</think>\n\n`]));
    expect(thinker.engine.heard).toHaveLength(3 + MAJORS.length);
  });

  it.each(MAJORS)("begins a call without thoughts with %s", async (_name, { generateText, tool }) => {
    thinker.engine.answers = ['{"a": 1}}\n</tool_call>'];
    const f = tool({ description: "", inputSchema: z.object({ a: z.number() }), execute: () => "" });
    const { toolCalls } = await generateText({ model, prompt: "?", tools: { f }, toolChoice: "required" });
    expect(toolCalls).toMatchObject([{ toolName: "f", input: { a: 1 } }]);
    expect(thinker.engine.heard.at(-1)).toMatch(
      /<think>\n\n<\/think>\n\n<tool_call>\n\{"name": "f", "arguments": $/,
    );
  });
});
