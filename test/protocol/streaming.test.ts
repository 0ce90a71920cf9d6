import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  APIConnectionError,
  APIUserAbortError,
  type SampledPiece,
  type SamplingClient,
} from "../../src/index.js";
import { encodeSampleEvent, type SampleEvent, type SampleResponse } from "../../src/wire/index.js";
import { encodeSampleResponse } from "../../src/wire/protobuf.js";
import { type ProtocolServer, type ScriptedAnswer, startProtocolServer } from "../support/protocol-server.js";
import { sampleResponse, type TestClient, testClient } from "./client.js";

const STREAM = "POST /api/v1/stream_sample";
const SAMPLE = "POST /api/v1/asample";

const response: SampleResponse = sampleResponse(2, {
  sequences: [
    {
      stopReason: "stop",
      sequenceId: "seq",
      tokens: Int32Array.of(7, 8, 9),
      logprobs: Float32Array.of(-0.5, -0.25, -1),
      topkLogprobs: null,
    },
  ],
  promptCacheHitTokens: 3,
});
const token = (position: number, changes: Partial<SampledPiece> = {}): SampleEvent => ({
  type: "token",
  sequence: 0,
  position,
  token: 7 + position,
  text: `t${position}`,
  logprob: [-0.5, -0.25, -1][position]!,
  ...changes,
});
const done: SampleEvent = { type: "done", sequence: 0, stopReason: "stop", totalTokens: 3, result: response };
const answer = (...events: SampleEvent[]): ScriptedAnswer => ({
  headers: { "content-type": "text/event-stream" },
  text: events.map(encodeSampleEvent).join(""),
});
const whole = answer(token(0), token(1), token(2), done);
/** A connection that breaks in the middle: what stands after the first half never comes. */
const broken: ScriptedAnswer = {
  ...answer(token(0), token(1)),
  text: answer(token(0), token(1)).text! + ": ".padEnd(400),
  drop: "mid-body",
};
const request = { prompt: [1, 2], samplingParams: { maxTokens: 3 } };
const seeded = { ...request, samplingParams: { maxTokens: 3, seed: 5 } };

describe.each(["undici", "fetch"])("a stream over %s", (sender) => {
  let server: ProtocolServer;
  let client: TestClient;
  let sampler: SamplingClient;
  beforeEach(async () => {
    server = await startProtocolServer();
    server.accept(SAMPLE, { bytes: encodeSampleResponse(response) });
    client = testClient(server, sender === "fetch" ? { fetch } : {});
    sampler = await client.service.createSamplingClient({ baseModel: "test/tiny" });
    server.requests.length = 0;
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });

  const read = async (given = request) => {
    const stream = sampler.stream(given);
    const pieces: SampledPiece[] = [];
    for await (const piece of stream) pieces.push(piece);
    return { pieces, result: await stream.result };
  };
  const positions = ({ pieces }: { pieces: SampledPiece[] }) => pieces.map(({ position }) => position);

  it("sends a constraint only to a server that says that it keeps it", async () => {
    const constraint = { type: "json_object" } as const;
    server.on("GET /api/v1/samplers/*", { json: { sampler_id: "s", base_model: "test/tiny" } });
    expect(await sampler.canConstrain()).toBe(false);
    await expect(sampler.stream({ ...request, constraint }).result).rejects.toThrow(
      "constraint is not possible here: this server does not constrain what it samples",
    );
    expect(server.requests.some(({ path }) => path.endsWith("stream_sample"))).toBe(false);
  });

  it("asks as sample does, without a number, and gives tokens and the result", async () => {
    server.on(STREAM, whole);
    const { pieces, result } = await read();
    expect(pieces).toEqual(
      [0, 1, 2].map((position) => {
        const { type: _, ...piece } = token(position) as Extract<SampleEvent, { type: "token" }>;
        return piece;
      }),
    );
    expect(result).toEqual(response);
    const [sent] = server.requestsTo(STREAM);
    expect(sent!.headers["accept"]).toBe("text/event-stream");
    expect(sent!.json()).toEqual({
      type: "sample",
      prompt: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
      num_samples: 1,
      sampling_params: { max_tokens: 3, temperature: 1, top_k: -1, top_p: 1 },
      sampling_session_id: sampler.samplingSessionId,
      topk_prompt_logprobs: 0,
    });
  });

  it("has its result even if its tokens are not read, and can be read once", async () => {
    server.on(STREAM, whole);
    const stream = sampler.stream(request);
    expect(await stream.result).toEqual(response);
    const pieces = [];
    for await (const piece of stream) pieces.push(piece);
    expect(pieces).toHaveLength(3);
    await expect(stream[Symbol.asyncIterator]().next()).rejects.toThrow(/read once/);
  });

  it("makes a result of the tokens where a server ends without one", async () => {
    server.on(STREAM, answer(token(0), token(1), { ...done, stopReason: "length", result: undefined }));
    const { result } = await read();
    expect(result.sequences).toMatchObject([{ tokens: Int32Array.of(7, 8), stopReason: "length" }]);
  });

  it.each([404, 405])(
    "falls back to sample at %i, all tokens at the end, and remembers it",
    async (status) => {
      server.on(STREAM, { status, json: { detail: "no such route" } });
      const first = await read();
      expect(first.pieces.map(({ token, logprob, stopReason }) => [token, logprob, stopReason])).toEqual([
        [7, -0.5, undefined],
        [8, -0.25, undefined],
        [9, -1, "stop"],
      ]);
      // There is no tokenizer for this model.
      expect(first.pieces.map(({ text }) => text)).toEqual([undefined, undefined, undefined]);
      expect(first.result.sequences).toMatchObject([{ tokens: Int32Array.of(7, 8, 9) }]);
      await read();
      expect(server.requestsTo(STREAM)).toHaveLength(1);
      expect(server.requestsTo(SAMPLE)).toHaveLength(2);
    },
  );

  it("forgets a 404 that was not about the route", async () => {
    server.on(STREAM, [{ status: 404, json: { detail: "no such session" } }, whole]);
    server.on(SAMPLE, { status: 404, json: { detail: "no such session" } });
    await expect(read()).rejects.toThrow(/no such session/);
    expect(positions(await read())).toEqual([0, 1, 2]);
  });

  it("that breaks continues after the tokens received, if it has a seed", async () => {
    server.on(STREAM, [broken, whole]);
    const { pieces, result } = await read(seeded);
    expect(positions({ pieces })).toEqual([0, 1, 2]);
    expect(pieces.map(({ text }) => text).join("")).toBe("t0t1t2");
    expect(result).toEqual(response);
    expect(server.requestsTo(STREAM)).toHaveLength(2);
  });

  it("that breaks without a seed fails with a sentence, after every token came once", async () => {
    server.on(STREAM, [broken, whole]);
    const stream = sampler.stream(request);
    const pieces: SampledPiece[] = [];
    const reading = (async () => {
      for await (const piece of stream) pieces.push(piece);
    })();
    await expect(reading).rejects.toThrow(
      /^The stream broke after 2 tokens, and cannot continue without a seed\. Set samplingParams\.seed/,
    );
    await expect(stream.result).rejects.toBeInstanceOf(APIConnectionError);
    expect(positions({ pieces })).toEqual([0, 1]);
    expect(server.requestsTo(STREAM)).toHaveLength(1);
  });

  it("that broke before its first token is asked again, seed or not", async () => {
    server.on(STREAM, [
      { ...whole, drop: "before" },
      { ...whole, text: " ".repeat(50), drop: "mid-body" },
      whole,
    ]);
    expect(positions(await read())).toEqual([0, 1, 2]);
  });

  it("refuses different tokens after a break, missing tokens and samples that were not requested", async () => {
    server.on(STREAM, [broken, answer(token(0, { token: 99 }), done)]);
    await expect(read(seeded)).rejects.toThrow(/sampled different tokens/);
    server.on(STREAM, answer(token(1), done));
    await expect(read()).rejects.toThrow(/left out token 0/);
    server.on(STREAM, answer(token(0, { sequence: 1 }), done));
    await expect(read()).rejects.toThrow(/sent sample 1, but 1 were requested/);
  });

  it("fails with what the server says in the middle", async () => {
    server.on(STREAM, answer(token(0), { type: "error", error: "out of memory", category: "server" }));
    await expect(read()).rejects.toMatchObject({ name: "RequestFailedError", category: "server" });
  });

  it("fails at once with what the server refuses, and at arguments that are wrong before that", async () => {
    server.on(STREAM, { status: 422, json: { detail: "no" } });
    await expect(read()).rejects.toMatchObject({ status: 422 });
    expect(() => sampler.stream({ ...request, maxTokens: 3 } as never)).toThrow(/samplingParams\.maxTokens/);
  });

  it("ends with its signal, and leaves nothing on it", async () => {
    server.on(STREAM, { ...whole, stallMs: 60_000 });
    const abort = new AbortController();
    const stream = sampler.stream(request, { signal: abort.signal });
    const iterator = stream[Symbol.asyncIterator]();
    await iterator.next();
    abort.abort();
    await expect(stream.result).rejects.toBeInstanceOf(APIUserAbortError);
    await expect(
      (async () => {
        for (;;) if ((await iterator.next()).done) return;
      })(),
    ).rejects.toBeInstanceOf(APIUserAbortError);
    expect(getEventListeners(abort.signal, "abort")).toEqual([]);
  });

  it("ends when its loop is left; the result says so", async () => {
    server.on(STREAM, { ...whole, stallMs: 60_000 });
    const stream = sampler.stream(request);
    for await (const { position } of stream) if (position === 0) break;
    await expect(stream.result).rejects.toThrow("The loop over the stream was left before the sample ended.");
  });

  it("on which nothing moves is taken for broken", async () => {
    server.on(STREAM, [{ ...answer(token(0), token(1), token(2), done), stallMs: 60_000 }, whole]);
    const stream = sampler.stream(seeded, { timeout: 30_000 });
    const pieces: SampledPiece[] = [];
    for await (const piece of stream) {
      pieces.push(piece);
      // The rest has not come when this passes, and does not come.
      if (piece.position === 0) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        await client.clock.advance(30_000);
      }
    }
    expect(positions({ pieces })).toEqual([0, 1, 2]);
  });
});
