import { getEventListeners } from "node:events";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import {
  APIUserAbortError,
  type SampleArguments,
  type SampledPiece,
  type SampleStream,
  type SamplingClient,
  ServiceClient,
} from "../../src/index.js";
import {
  type BaseModelInfo,
  CancelledError,
  type Engine,
  type OnToken,
  type SampleCall,
  type SampledToken,
  type SampleResult,
} from "../../src/local/engine/engine.js";
import { StopCondition } from "../../src/local/engine/sampling/stop-condition.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { loadTokenizer, type Tokenizer } from "../../src/tokenizers/index.js";
import { cases, longTest } from "../support/long.js";
import { FakeEngine, fakeModel, tellAll } from "./fake-engine.js";
import { silent } from "./raw-client.js";

/** The same sequence of numbers every time. */
function dice(seed: number) {
  let state = seed;
  const next = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return { next, of: <T>(list: readonly T[]): T => list[next(list.length)]! };
}

async function inTurns(count: number, atOnce: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

async function read(stream: SampleStream) {
  const pieces: SampledPiece[] = [];
  for await (const piece of stream) pieces.push(piece);
  return { pieces, result: await stream.result };
}

const withoutIds = <T extends { sequences: readonly object[] }>(result: T) => ({
  ...result,
  sequences: result.sequences.map((sequence) => ({ ...sequence, sequenceId: null })),
  // The second of two equal requests finds the first's prompt.
  promptCacheHitTokens: 0,
});

/** Streams a request and compares with the unstreamed answer: tokens, logprobs, top-k, text and the whole result. */
async function compare(
  sampler: SamplingClient,
  tokenizer: Tokenizer,
  request: SampleArguments,
): Promise<void> {
  const [whole, { pieces, result }] = await Promise.all([
    sampler.sample(request),
    read(sampler.stream(request)),
  ]);
  expect(withoutIds(result)).toEqual(withoutIds(whole));
  const stops = [request.samplingParams?.stop ?? []].flat().filter((stop) => typeof stop === "string");
  for (const [index, sequence] of whole.sequences.entries()) {
    const told = pieces.filter((piece) => piece.sequence === index);
    expect(told.map(({ position }) => position)).toEqual([...sequence.tokens.keys()]);
    expect(told.map(({ token }) => token)).toEqual([...sequence.tokens]);
    expect(told.map(({ logprob }) => logprob)).toEqual([...sequence.logprobs!]);
    expect(told.map(({ topk }) => topk ?? null)).toEqual(sequence.topkLogprobs ?? told.map(() => null));
    expect(told.map(({ stopReason }) => stopReason)).toEqual(
      told.map((_, at) => (at === told.length - 1 ? sequence.stopReason : undefined)),
    );
    const text = tokenizer.decode(sequence.tokens, { skipSpecialTokens: true });
    const starts = stops.map((stop) => text.indexOf(stop)).filter((start) => start !== -1);
    const shown = sequence.stopReason === "stop" ? text.slice(0, Math.min(text.length, ...starts)) : text;
    expect(told.map((piece) => piece.text).join("")).toBe(shown);
  }
}

describe("streams of the real engine", () => {
  let engine: Engine;
  let backend: LocalBackend;
  let service: ServiceClient;
  let sampler: SamplingClient;
  let tokenizer: Tokenizer;
  let inFlight = 0;
  let cancelled = 0;
  beforeAll(async () => {
    engine = await startEngine({ models: [defaultModel], threads: 2, inThread: true });
    const { sample } = engine;
    engine.sample = (...args) => {
      inFlight += 1;
      return sample
        .apply(engine, args)
        .catch((error: unknown) => {
          if (error instanceof CancelledError) cancelled += 1;
          throw error;
        })
        .finally(() => {
          inFlight -= 1;
        });
    };
    backend = await startLocalBackend({ engine, logger: silent });
    service = new ServiceClient(backend);
    sampler = await service.createSamplingClient({ baseModel: defaultModel.name });
    tokenizer = await loadTokenizer(defaultModel.name);
  });
  afterAll(async () => {
    await service.close();
    await backend.close();
  });

  it("say the same as sample, for random requests", async () => {
    await inTurns(cases(500, 40), 16, async (index) => {
      const { next, of } = dice(index + 1);
      const prompt = Array.from({ length: 1 + next(20) }, () => next(500));
      const samplingParams = {
        maxTokens: 1 + next(24),
        seed: next(1e6),
        temperature: of([0, 0.7, 1, 3, 10]),
      };
      const request: SampleArguments = {
        prompt,
        samplingParams,
        numSamples: 1 + next(3),
        includePromptLogprobs: next(4) === 0,
        topkSampleLogprobs: of([0, 0, 3]),
      };
      if (next(2) === 0) {
        const { sequences } = await sampler.sample(request);
        const text = tokenizer.decode(sequences[0]!.tokens);
        // Texts that do come, cut out anywhere, and one that does not.
        const cut = () =>
          text.slice(next(text.length), next(text.length) + 1 + next(6)).replaceAll("\uFFFD", "");
        const stop = [cut(), cut(), "never said"].filter((one) => one !== "");
        request.samplingParams = { ...samplingParams, stop };
      }
      await compare(sampler, tokenizer, request);
    });
  });

  longTest(
    "many at once, half of them left in the middle: nothing stays behind, and training goes on",
    async () => {
      const training = await service.createLoraTrainingClient({ baseModel: defaultModel.name, rank: 4 });
      const tokens = Array.from({ length: 32 }, (_, index) => index + 40);
      const datum = {
        modelInput: tokens,
        lossFnInputs: { targetTokens: tokens, weights: tokens.map(() => 1) },
      };
      const step = async () => {
        const pass = training.forwardBackward([datum], "cross_entropy");
        await training.optimStep({ learningRate: 1e-4 });
        await pass;
      };
      await step();
      const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
      const timersBefore = timers();
      const abort = new AbortController();
      let open = 0;
      let openAtLastStep = 0;
      const outcomes: string[] = [];
      const total = 200;
      const streams = Array.from({ length: total }, async (_, index) => {
        const manner = index % 2 === 0 ? "read" : index % 4 === 1 ? "left" : "aborted";
        const options = manner === "aborted" ? { signal: abort.signal } : {};
        const samplingParams = { maxTokens: 160, seed: index, stop: [] };
        open += 1;
        const stream = sampler.stream({ prompt: [index, 7, 9], samplingParams }, options);
        let count = 0;
        try {
          for await (const _piece of stream) {
            count += 1;
            if (manner === "left" && count === 20) break;
          }
          if (manner === "read") await stream.result;
          outcomes.push(`${manner} ${count}`);
        } catch (error) {
          expect(error).toBeInstanceOf(APIUserAbortError);
          outcomes.push(manner);
        }
        open -= 1;
      });
      const steps = (async () => {
        for (let count = 0; count < 5; count += 1) {
          await step();
          openAtLastStep = open;
        }
      })();
      await vi.waitFor(() => expect(outcomes.filter((one) => one === "left 20").length).toBeGreaterThan(20));
      abort.abort();
      await Promise.all([steps, ...streams]);
      expect(openAtLastStep).toBeGreaterThan(0);
      expect(outcomes.filter((one) => one === "read 160")).toHaveLength(total / 2);
      expect(outcomes.filter((one) => one === "left 20")).toHaveLength(total / 4);
      expect(outcomes.filter((one) => one === "aborted")).toHaveLength(total / 4);
      await vi.waitFor(() => expect(inFlight).toBe(0));
      expect(cancelled).toBe(total / 2);
      expect(getEventListeners(abort.signal, "abort")).toEqual([]);
      await vi.waitFor(() => expect(timers()).toBeLessThanOrEqual(timersBefore + 4), 5_000);
    },
  );
});

/** Says texts of many bytes a character, token by token, and stops as the real engine does. */
class SayingEngine extends FakeEngine {
  readonly #tokenizer: Tokenizer;
  readonly #tokenizerPath: string;

  constructor(tokenizer: Tokenizer, tokenizerPath: string) {
    super();
    this.#tokenizer = tokenizer;
    this.#tokenizerPath = tokenizerPath;
  }

  override async models(): Promise<BaseModelInfo[]> {
    const { name } = defaultModel;
    const sizes = { vocabSize: 512, maxContextLength: 4096 };
    return [{ ...fakeModel, ...sizes, name, tokenizerPath: this.#tokenizerPath }];
  }

  override async sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    const { next, of } = dice(call.seed!);
    const words = ["日本語", "🙂", "é", "ab", "👩‍👩‍👧", "\n", "ありがとう", "ß", " ", "a"];
    const said = this.#tokenizer.encode(Array.from({ length: 1 + next(20) }, () => of(words)).join(""));
    const stop = new StopCondition([], call.stopStrings, (tokens) => this.#tokenizer.decode(tokens));
    const generated: number[] = [];
    const heard: SampledToken[] = [];
    let stopped = false;
    while (!stopped && generated.length < Math.min(call.maxTokens, said.length)) {
      generated.push(said[generated.length]!);
      stopped = stop.reached(generated);
    }
    const tokens = Int32Array.from(generated);
    const stopReason = stopped ? ("stop" as const) : ("length" as const);
    const sequence = { tokens, logprobs: new Float32Array(tokens.length), stopReason };
    const result = { sequences: [sequence], promptCacheHitTokens: 0 };
    tellAll(result, (token) => heard.push(token));
    for (const token of heard) {
      onToken?.(token);
      if (next(3) === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    return result;
  }
}

it.each([
  ["from the server", defaultModel.path, 200],
  ["from the client's tokenizer, where the server has none", "/nowhere", 200],
  ["from the client's tokenizer, where the server cannot stream", defaultModel.path, 404],
])(
  "characters of many bytes and stop texts among them come whole or not at all: %s",
  async (_, tokenizerPath, status) => {
    const tokenizer = await loadTokenizer(defaultModel.name);
    const engine = new SayingEngine(tokenizer, tokenizerPath);
    await using backend = await startLocalBackend({ engine, logger: silent, listen: false });
    const paths: string[] = [];
    await using service = new ServiceClient({
      ...backend,
      fetch: async (input, init) => {
        const { pathname } = new URL(String(input));
        paths.push(pathname);
        return pathname.endsWith("/stream_sample") && status === 404
          ? Response.json({ detail: "no such route" }, { status })
          : backend.fetch(input, init);
      },
    });
    const sampler = await service.createSamplingClient({ baseModel: defaultModel.name });
    const requests = cases(200, 30);
    await inTurns(requests, 8, async (index) => {
      const { next, of } = dice(index + 77);
      const stops = ["本語", "🙂é", "b日", "👧", "ab\n", "とう ", "aß", "zz"];
      const stop = Array.from({ length: next(3) }, () => of(stops));
      const samplingParams = { seed: next(1e6), maxTokens: 1 + next(80), ...(stop.length > 0 && { stop }) };
      await compare(sampler, tokenizer, { prompt: [1 + next(50)], samplingParams });
      const { pieces } = await read(sampler.stream({ prompt: [1], samplingParams }));
      for (const { text, stopReason } of pieces)
        if (stopReason === undefined) expect(text).not.toContain("\uFFFD");
    });
    const streams = paths.filter((path) => path.endsWith("/stream_sample")).length;
    if (status === 404) expect(streams).toBeLessThanOrEqual(8);
    else expect(streams).toBe(2 * requests);
  },
);
