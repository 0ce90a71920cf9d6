import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import type { SampleResponse, SamplingParams } from "../wire/index.js";
import { Answers } from "./answer-events.js";
import { getRenderer, type Message } from "./index.js";
import { ModelFormats } from "./model-formats.js";
import { type AnswerRequest, ConversationError, chooseRenderer, prepareAnswer } from "./prepare-answer.js";
import { ReportedSamples, samplerSource, type TokenSampler, type TokenSource } from "./token-source.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const formats = new ModelFormats("Qwen/Qwen3-8B", tokenizer);
const messages: readonly Message[] = [{ role: "user", content: "2+2?" }];
const add = { name: "add", description: "", parameters: { type: "object", properties: {} } };
const ANSWER =
  '<think>\nEasy.\n</think>\n\nI add.\n<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>';

const encode = (text: string) => Int32Array.from(tokenizer.encode(text, { addSpecialTokens: false }));
const prepared = (request: Partial<AnswerRequest> = {}) => {
  const whole = { messages, ...request };
  return prepareAnswer(chooseRenderer(formats, whole), whole);
};
const textOf = (tokens: ArrayLike<number>) => tokenizer.decode(Array.from(tokens));

function responseOf(answer: string, stopReason = "stop"): SampleResponse {
  const tokens = encode(answer);
  const logprobs = Float32Array.from(tokens, () => -1);
  return {
    sequences: [{ stopReason, sequenceId: null, tokens, logprobs, topkLogprobs: null }],
    promptLogprobs: null,
    topkPromptLogprobs: null,
    targetPromptLogprobs: null,
    promptCacheHitTokens: 3,
    promptAltTokens: null,
  };
}

/** Stands for an engine in this process: values that come at once or one by one. */
function engine(answer: string): TokenSource {
  return {
    async *sample(_prepared, { isLive }) {
      const told = new ReportedSamples();
      const response = responseOf(answer);
      const tokens = isLive ? [...response.sequences[0]!.tokens] : [];
      for (const [place, token] of tokens.entries())
        yield* told.next(0, [token, -1], [], place === tokens.length - 1 ? "stop" : undefined);
      yield* told.rest(response);
    },
  };
}

/** A sampling client that remembers how it was asked; its stream says why it ended in its result alone. */
function client(answer: string) {
  const asked: SamplingParams[] = [];
  const response = responseOf(answer);
  const sampler = {
    sample: async ({ samplingParams }: { samplingParams: SamplingParams }) => {
      asked.push(samplingParams);
      return response;
    },
    stream: ({ samplingParams }: { samplingParams: SamplingParams }) => {
      asked.push(samplingParams);
      const pieces = async function* () {
        for (const [position, token] of [...response.sequences[0]!.tokens].entries())
          yield { sequence: 0, position, token, text: undefined, logprob: -1 };
      };
      return Object.assign(pieces(), { result: Promise.resolve(response) });
    },
  } as unknown as TokenSampler;
  return { asked, source: samplerSource(sampler) };
}

describe("a prepared answer", () => {
  it("reads the same from an engine and from a sampling client, whole and as it comes", async () => {
    const answers = [true, false].flatMap((isLive) =>
      [engine(ANSWER), client(ANSWER).source].map(
        (source) => new Answers(source, prepared({ tools: [add] }), { isLive }),
      ),
    );
    for (const answer of answers) {
      const [whole] = await answer.whole();
      expect(whole).toMatchObject({
        pieces: [
          { type: "reasoning", text: "Easy." },
          { type: "text", text: "I add." },
          { type: "calls", calls: [{ name: "add", arguments: '{"a": 2}' }] },
        ],
        stopReason: "stop",
        hasCalls: true,
      });
      // The token that ends the turn is counted, but is not part of the answer.
      expect(textOf(whole!.tokens.map(({ scored }) => scored[0]))).toBe(
        ANSWER.slice(0, -"<|im_end|>".length),
      );
      expect(answer.usage).toMatchObject({ cachedTokens: 3, completionTokens: encode(ANSWER).length });
      expect(answer.response!.sequences[0]!.tokens).toHaveLength(encode(ANSWER).length);
    }
  });

  it("stops at tokens and texts where a source takes both, and at texts alone where it takes one kind", async () => {
    const { asked, source } = client("one ### two");
    const plain = prepared();
    const stopped = prepared({ stop: ["###"], endTokens: [7] });
    expect(plain.stop).toEqual(plain.renderer.stopSequences);
    expect(stopped).toMatchObject({ stopTokens: [...plain.stopTokens, 7], stopTexts: ["###"] });
    const [whole] = await new Answers(source, stopped, { isLive: false }).whole();
    expect(asked).toMatchObject([{ stop: ["<|im_end|>", "###"] }]);
    expect(whole!.pieces).toEqual([{ type: "text", text: "one " }]);
  });

  it("goes on from exactly the tokens that were sampled", () => {
    const renderer = getRenderer("qwen3_instruct", tokenizer);
    const first = prepareAnswer(renderer, { messages });
    // Other spaces than the format writes by itself.
    const tokens = encode('<tool_call>\n{"name":"add","arguments":{"a":2}}\n</tool_call><|im_end|>');
    const { message } = first.read(tokens);
    const result = { role: "tool", content: "4", name: "add" };
    const next = prepareAnswer(
      renderer,
      { messages: [...messages, message, result] },
      { prepared: first, tokens },
    );
    expect(next.conversation.isExtension).toBe(true);
    expect(textOf(next.prompt.toInts())).toContain(textOf(first.prompt.toInts()) + textOf(tokens));
  });

  it("begins a call that must come, without thoughts", () => {
    const forced = prepared({ tools: [add], toolChoice: "required" });
    expect(textOf(forced.prompt.toInts())).toMatch(
      /<think>\n\n<\/think>\n\n<tool_call>\n\{"name": "add", "arguments": $/,
    );
    const reader = forced.newReader();
    const pieces = [...encode('{"a": 2}}\n</tool_call><|im_end|>')].flatMap((token) => reader.push(token));
    expect([...pieces, ...reader.end()]).toMatchObject([
      { type: "calls", calls: [{ arguments: '{"a": 2}' }] },
    ]);
  });

  it("reads JSON as text, whatever tags stand in it", async () => {
    const json = '{"a": "<think>no</think>"}';
    const responseFormat = { type: "json_object" } as const;
    const [whole] = await new Answers(engine(json), prepared({ responseFormat }), { isLive: true }).whole();
    expect(whole!.pieces).toEqual([{ type: "text", text: json }]);
  });

  it("with a response format is refused by a sampling client, which cannot constrain its tokens", async () => {
    const { source, asked } = client("{}");
    const answers = new Answers(source, prepared({ responseFormat: { type: "json_object" } }), {
      isLive: true,
    });
    await expect(answers.whole()).rejects.toThrow("responseFormat must be text with a sampling client");
    expect(asked).toEqual([]);
  });

  it("is refused with the field and the reason, for each API to say in its own words", () => {
    const refused = (request: Partial<AnswerRequest>) => {
      try {
        prepared(request);
      } catch (error) {
        return error instanceof ConversationError ? [error.field, error.isUnsupported, error.why] : error;
      }
      return undefined;
    };
    expect(refused({ toolChoice: "required" })).toEqual([
      "toolChoice",
      false,
      "asks for a call, and no tools are given.",
    ]);
    expect(refused({ tools: [add], toolChoice: { name: "sub" } })).toEqual([
      "toolChoice",
      false,
      "names sub, which is not among tools.",
    ]);
    expect(refused({ messages: [{ role: "user", content: [{ type: "image", image: "" }] }] })).toEqual([
      "messages",
      false,
      expect.stringContaining("cannot be written in this model's format: Qwen3's text models take no images"),
    ]);
    const never = new ModelFormats("tinkerts/nano", tokenizer);
    expect(() => chooseRenderer(never, { messages, thinking: "low" })).toThrow(
      "thinking cannot be low with tinkerts/nano: it has no such mode.",
    );
  });
});
