import { rm } from "node:fs/promises";
import Anthropic from "@anthropic-ai/sdk";
import { Ajv2020 } from "ajv/dist/2020.js";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { JsonCursor, JsonVocabulary } from "../../src/local/engine/sampling/json/json-sampling.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { getRenderer, type Renderer, rendererNames } from "../../src/renderers/index.js";
import {
  type AnswerRequest,
  type PreparedAnswer,
  prepareAnswer,
  type ResponseFormat,
  type ToolChoice,
} from "../../src/renderers/prepare-answer.js";
import { randomModel } from "../engine/random-model.js";
import { ByteTokenizer } from "../support/byte-tokenizer.js";
import { cases } from "../support/long.js";
import { silent } from "./raw-client.js";

const ajv = new Ajv2020({ strict: false });
const tools = [
  {
    name: "book_room",
    description: "Books a room.",
    parameters: {
      type: "object",
      properties: {
        // Texts that look like other values stay texts.
        hotel: { type: "string", enum: ["Hotel Ü & <b>", "12", "true", "null"] },
        code: { type: "string", pattern: "^[0-9]{3}$" },
        note: { type: "string" },
        nights: { type: "integer", minimum: 1, maximum: 14 },
        price: { anyOf: [{ type: "number" }, { type: "null" }] },
        guests: {
          type: "array",
          maxItems: 2,
          items: { type: "object", properties: { name: { $ref: "#/$defs/name" } }, required: ["name"] },
        },
      },
      required: ["hotel", "code", "nights"],
      $defs: { name: { type: "string", maxLength: 5 } },
    },
  },
  { name: "now", description: "The time.", parameters: { type: "object", properties: {} } },
];
const fits = new Map(tools.map(({ name, parameters }) => [name, ajv.compile(parameters)]));
const messages = [{ role: "user", content: "A room in Rome?" }];

/** Numbers that are the same in every run. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const tokenizer = new ByteTokenizer();
const vocabulary = new JsonVocabulary(() => tokenizer.json, ByteTokenizer.vocabSize);
const MAX_TOKENS = 400;

/** An answer of a model that likes all tokens alike. */
function guess({ shape, stopTokens }: PreparedAnswer, random: () => number): number[] {
  const grammar = vocabulary.grammar({ type: "shape", shape: JSON.parse(JSON.stringify(shape)) });
  const cursor = new JsonCursor(grammar, stopTokens, MAX_TOKENS);
  const logits = new Float32Array(ByteTokenizer.vocabSize);
  const tokens: number[] = [];
  while (tokens.length < MAX_TOKENS) {
    const masked = cursor.mask(logits);
    const allowed = [...masked.keys()].filter((token) => masked[token] === 0);
    const token = allowed[Math.floor(random() * allowed.length)]!;
    tokens.push(token);
    if (stopTokens.includes(token)) return tokens;
    cursor.take(token);
  }
  throw new Error("the answer did not end");
}

function answered(renderer: Renderer, request: Partial<AnswerRequest>, random: () => number) {
  const prepared = prepareAnswer(renderer, { messages, tools, ...request });
  const tokens = guess(prepared, random);
  const reader = prepared.newReader();
  const pieces = [...tokens.flatMap((token) => reader.push(token)), ...reader.end()];
  return {
    written: tokenizer.decode(tokens),
    said: pieces.map((piece) => (piece.type === "text" ? piece.text : "")).join(""),
    calls: pieces.flatMap((piece) => (piece.type === "calls" ? piece.calls : [])),
  };
}

const isFitting = ({ name, arguments: given }: { name: string; arguments: string }) =>
  fits.get(name)?.(JSON.parse(given)) === true;

const calling = rendererNames().filter((name) => !["role_colon", "llama3", "template"].includes(name));

describe("an answer that must be a call", () => {
  it.each(calling)("is one with %s, of a tool that exists and with arguments that fit", (name) => {
    const renderer = getRenderer(name, tokenizer);
    const random = numbers(name.length);
    const choices: ToolChoice[] = ["required", { name: "book_room" }];
    for (const toolChoice of choices) {
      for (let times = 0; times < cases(10, 3); times++) {
        const { written, said, calls } = answered(renderer, { toolChoice }, random);
        expect(calls.length, written).toBeGreaterThan(0);
        expect(said, written).toBe("");
        if (toolChoice !== "required") expect(calls.map((call) => call.name)).toEqual(["book_room"]);
        expect(
          calls.filter((call) => !isFitting(call)),
          written,
        ).toEqual([]);
      }
    }
  });

  it("is a single call where only one is allowed", () => {
    const renderer = getRenderer("qwen3_instruct", tokenizer);
    const random = numbers(1);
    const counts = (maxToolCalls?: number) =>
      Array.from(
        { length: 20 },
        () => answered(renderer, { toolChoice: "required", maxToolCalls }, random).calls.length,
      );
    expect(new Set(counts(1))).toEqual(new Set([1]));
    expect(Math.max(...counts())).toBeGreaterThan(1);
  });
});

describe("an answer that is JSON or a call", () => {
  const schema = { type: "object", properties: { stars: { enum: [1, 2, 3] } }, required: ["stars"] };
  const responseFormat: ResponseFormat = { type: "json_schema", schema };
  const isAnswer = ajv.compile(schema);

  it.each(["qwen3", "qwen3_instruct", "qwen3_5_disable_thinking", "deepseekv3", "kimi_k25_disable_thinking"])(
    "is either with %s, and fits",
    (name) => {
      const renderer = getRenderer(name, tokenizer);
      const random = numbers(7);
      const answers = Array.from({ length: 40 }, () => answered(renderer, { responseFormat }, random));
      for (const { written, said, calls } of answers) {
        expect(said === "" ? calls.length : 0, written).toBe(calls.length);
        if (calls.length > 0) expect(calls.every(isFitting), written).toBe(true);
        else expect(isAnswer(JSON.parse(said)), written).toBe(true);
      }
      const called = answers.filter(({ calls }) => calls.length > 0).length;
      expect(called).toBeGreaterThan(0);
      expect(called).toBeLessThan(40);
    },
  );

  it("is JSON alone where no calls are allowed, and a call where one must come", () => {
    const renderer = getRenderer("qwen3_instruct", tokenizer);
    const none = prepareAnswer(renderer, { messages, tools, responseFormat, toolChoice: "none" });
    expect(none).toMatchObject({ responseFormat, shape: undefined });
    const forced = answered(renderer, { responseFormat, toolChoice: "required" }, numbers(3));
    expect(forced.calls.every(isFitting) && forced.calls.length > 0).toBe(true);
  });
});

describe("a model with weights by chance", () => {
  let folder: string;
  let backend: LocalBackend;
  let openai: OpenAI;
  let anthropic: Anthropic;
  const model = "tinkerts/nano";
  beforeAll(async () => {
    folder = await randomModel(3);
    const engine = await startEngine({ models: [{ name: model, path: folder }], threads: 1, inThread: true });
    backend = await startLocalBackend({ engine, logger: silent, apiKeys: ["tml-key-of-the-tests"] });
    const access = { apiKey: "tml-key-of-the-tests", maxRetries: 0 };
    openai = new OpenAI({ baseURL: `${backend.baseURL}/v1`, ...access });
    anthropic = new Anthropic({ baseURL: `${backend.baseURL}/anthropic`, ...access });
  });
  afterAll(async () => {
    await backend.close();
    await rm(folder, { recursive: true });
  });

  const small = { ...tools[0]!.parameters, required: ["code", "nights"] };
  const isSmall = ajv.compile(small);
  const chat = {
    model,
    max_tokens: 150,
    messages: [{ role: "user" as const, content: "Rome?" }],
    tools: [
      { type: "function" as const, function: { name: "book_room", parameters: small } },
      { type: "function" as const, function: { name: "now", parameters: tools[1]!.parameters } },
    ],
  };
  const isRight = (name: string, given: unknown) =>
    name === "now" ? JSON.stringify(given) === "{}" : name === "book_room" && isSmall(given);

  it("calls the functions of OpenAI's clients, 20 of 20, at once and streamed", async () => {
    const named = { type: "function" as const, function: { name: "book_room" } };
    for (let seed = 0; seed < 10; seed++) {
      const request = { ...chat, seed, tool_choice: seed % 2 === 0 ? ("required" as const) : named };
      const whole = await openai.chat.completions.create(request);
      const streamed = await openai.chat.completions.stream(request).finalChatCompletion();
      for (const { choices } of [whole, streamed]) {
        const [{ message, finish_reason: reason }] = choices as [(typeof choices)[number]];
        expect(reason).toBe("tool_calls");
        const calls = (message.tool_calls ?? []).flatMap((call) => (call.type === "function" ? [call] : []));
        expect(calls.length).toBeGreaterThan(0);
        for (const { function: called } of calls)
          expect(isRight(called.name, JSON.parse(called.arguments)), called.arguments).toBe(true);
      }
      expect(
        streamed.choices[0]!.message.tool_calls?.map((call) => call.type === "function" && call.function),
      ).toEqual(
        whole.choices[0]!.message.tool_calls?.map((call) => call.type === "function" && call.function),
      );
    }
  });

  it("calls the tools of Anthropic's client, 20 of 20, at once and streamed", async () => {
    const own = chat.tools.map(({ function: { name, parameters } }) => ({
      name,
      input_schema: parameters as Anthropic.Tool.InputSchema,
    }));
    const choices = [{ type: "any" }, { type: "tool", name: "book_room" }] as const;
    for (let times = 0; times < 10; times++) {
      const request = { ...chat, tools: own, tool_choice: choices[times % 2]! };
      const answers = [
        await anthropic.messages.create(request),
        await anthropic.messages.stream(request).finalMessage(),
      ];
      for (const { content, stop_reason: reason } of answers) {
        expect(reason).toBe("tool_use");
        expect(content.length).toBeGreaterThan(0);
        for (const block of content)
          expect(block.type === "tool_use" && isRight(block.name, block.input), JSON.stringify(block)).toBe(
            true,
          );
      }
    }
  });

  it("answers by a schema or calls, as it likes", async () => {
    const schema = { type: "object", properties: { stars: { enum: [1, 2, 3] } }, required: ["stars"] };
    const kinds = new Set<string>();
    for (let seed = 0; seed < 12; seed++) {
      const { choices } = await openai.chat.completions.create({
        ...chat,
        seed,
        temperature: 1.5,
        response_format: { type: "json_schema", json_schema: { name: "rating", schema } },
      });
      const { content, tool_calls: calls } = choices[0]!.message;
      kinds.add(calls ? "call" : "json");
      if (calls === undefined) expect([1, 2, 3]).toContain(JSON.parse(content!).stars);
      else expect(content).toBeNull();
    }
    expect([...kinds].sort()).toEqual(["call", "json"]);
  });

  it("is refused what no grammar can promise, by the tool's name", async () => {
    const parameters = { type: "object", properties: { a: { not: { type: "null" } } }, required: ["a"] };
    const request = {
      ...chat,
      tools: [{ type: "function" as const, function: { name: "odd", parameters } }],
      tool_choice: "required" as const,
    };
    await expect(openai.chat.completions.create(request)).rejects.toMatchObject({
      status: 400,
      param: "tools",
      message: expect.stringContaining('tool odd, #/properties/a: "not" is not supported'),
    });
    await expect(
      openai.chat.completions.create({ ...chat, max_tokens: 5, tool_choice: "required" }),
    ).rejects.toMatchObject({ status: 400 });
  });
});
