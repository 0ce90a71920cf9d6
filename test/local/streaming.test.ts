import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  CancelledError,
  EngineInputError,
  type OnToken,
  type SampleCall,
  type SampleResult,
} from "../../src/local/engine/engine.js";
import { type LocalBackend, type LocalBackendOptions, startLocalBackend } from "../../src/local/index.js";
import { Activity } from "../../src/local/server/activity.js";
import { FutureStore } from "../../src/local/server/futures/future-store.js";
import { defaultLimits } from "../../src/local/server/http/limits.js";
import { OwnerShares } from "../../src/local/server/http/owner-shares.js";
import { AdapterPool } from "../../src/local/server/sampling/adapter-pool.js";
import { jobAlone, toSampleCall } from "../../src/local/server/sampling/sample-call.js";
import { SampleRuns } from "../../src/local/server/sampling/sample-runs.js";
import { openStore } from "../../src/local/store/index.js";
import { systemClock } from "../../src/transport/clock.js";
import { endpoints } from "../../src/wire/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { passTime } from "./pass-time.js";
import { RawClient, sampleBody, silent } from "./raw-client.js";

interface Drawing {
  readonly call: SampleCall;
  /** Draws so many tokens of every sample. */
  draw(count: number): void;
  finish(): void;
  fail(error: Error): void;
}

/** Draws tokens on request: token 10 at position 0, 11 at position 1, and so on. */
class SteeredEngine extends FakeEngine {
  readonly drawings: Drawing[] = [];
  readonly cancelled: string[] = [];
  readonly #open = new Map<string, (error: Error) => void>();

  override sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    return new Promise((resolve, reject) => {
      let drawn = 0;
      const fail = (error: Error) => {
        this.#open.delete(call.requestId);
        reject(error);
      };
      this.#open.set(call.requestId, fail);
      const draw = (count: number) => {
        for (const end = drawn + count; drawn < end; drawn += 1) {
          for (let index = 0; index < call.numSamples; index += 1)
            onToken?.({ index, position: drawn, token: 10 + drawn, logprob: -1 });
        }
      };
      const finish = () => {
        this.#open.delete(call.requestId);
        const tokens = Int32Array.from({ length: drawn }, (_, position) => 10 + position);
        const logprobs = new Float32Array(drawn).fill(-1);
        const one = { tokens, logprobs, stopReason: "length" as const };
        resolve({ sequences: new Array(call.numSamples).fill(one), promptCacheHitTokens: 0 });
      };
      this.drawings.push({ call, draw, finish, fail });
    });
  }

  override cancelSample(requestId: string): void {
    this.cancelled.push(requestId);
    this.#open.get(requestId)?.(new CancelledError("The request was cancelled."));
  }

  get inFlight(): number {
    return this.#open.size;
  }
}

const baseBody = (changes: object = {}) => {
  const { sampling_session_id: _, seq_id: __, ...rest } = sampleBody("", 0);
  return { ...rest, base_model: "fake/tiny", ...changes };
};

const open: LocalBackend[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const backend of open.splice(0)) await backend.close();
});

async function start(options: LocalBackendOptions = {}) {
  const engine = new SteeredEngine();
  const backend = await startLocalBackend({ engine, listen: false, logger: silent, ...options });
  open.push(backend);
  const client = new RawClient(backend);
  const stream = (body: unknown, init: RequestInit = {}) =>
    client.send("POST", "/api/v1/stream_sample", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      ...init,
    });
  const drawing = async (index = 0) => {
    await vi.waitFor(() => expect(engine.drawings.length).toBeGreaterThan(index));
    return engine.drawings[index]!;
  };
  return { engine, backend, client, stream, drawing };
}

/** Reads a body event by event. */
function reader(response: Response) {
  const body = response.body!.getReader();
  const text = new TextDecoder();
  let held = "";
  return {
    cancel: () => body.cancel(),
    async next(): Promise<string | undefined> {
      while (!held.includes("\n\n")) {
        const { done, value } = await body.read();
        if (done) return undefined;
        held += text.decode(value, { stream: true });
      }
      const end = held.indexOf("\n\n");
      const event = held.slice(0, end);
      held = held.slice(end + 2);
      return event;
    },
  };
}

const parsed = (event: string | undefined): Record<string, unknown> => {
  const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event ?? "") ?? [];
  return { name, ...JSON.parse(data ?? "{}") };
};

describe("a streamed sample", () => {
  it.each([true, false])(
    "has its first token on the wire before the second is drawn (socket: %s)",
    async (listen) => {
      const { stream, drawing } = await start({ listen });
      const answering = stream(baseBody());
      const engine = await drawing();
      engine.draw(1);
      const response = await answering;
      expect(response.status).toBe(200);
      expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
      const events = reader(response);
      const first = { name: "token", token: null, token_id: 10, index: 0, logprob: -1, sequence: 0 };
      expect(parsed(await events.next())).toEqual(first);
      engine.draw(1);
      expect(parsed(await events.next())).toEqual({ ...first, token_id: 11, index: 1 });
      engine.finish();
      expect(parsed(await events.next())).toMatchObject({
        name: "done",
        finish_reason: "length",
        total_tokens: 2,
        result: { sequences: [{ tokens: [10, 11], logprobs: [-1, -1], stop_reason: "length" }] },
      });
      expect(await events.next()).toBeUndefined();
    },
  );

  it("ends with what asample's future gives, samples in any order, the result with the last", async () => {
    const { client, stream, drawing } = await start();
    const body = baseBody({ num_samples: 3, prompt_logprobs: true });
    const answering = stream(body);
    const engine = await drawing();
    engine.draw(3);
    engine.finish();
    const events = (await (await answering).text()).trim().split("\n\n").map(parsed);
    expect(events.filter((event) => event["name"] === "token")).toHaveLength(9);
    const done = events.slice(9);
    expect(done.map((event) => [event["sequence"], event["result"] !== undefined])).toEqual([
      [0, false],
      [1, false],
      [2, true],
    ]);
    const accepted = await client.ok("/asample", body);
    const again = await drawing(1);
    again.draw(3);
    again.finish();
    const { body: result } = await client.post("/retrieve_future", { request_id: accepted["request_id"] });
    const { sequences, ...rest } = done[2]!["result"] as { sequences: Record<string, unknown>[] };
    expect({ ...rest, sequences: sequences.map(({ sequence_id: _, ...one }) => one) }).toEqual(result);
    expect(new Set(sequences.map(({ sequence_id: id }) => id)).size).toBe(3);
  });

  it.each([
    [422, baseBody({ prompt: { chunks: [{ type: "encoded_text", tokens: [1, 4000] }] } }), /has token 4000/],
    [422, baseBody({ sampling_params: { max_tokens: 0 } }), /max_tokens/],
    [422, baseBody({ base_model: "nobody" }), /nobody/],
    [422, baseBody({ base_model: undefined }), /sampling_session_id, or base_model or model_path/],
    [404, sampleBody("nobody:sample:0", 0), /session/],
  ])("is refused with %i before anything is drawn", async (status, body, message) => {
    const { engine, stream } = await start();
    const response = await stream(body);
    expect(response.status).toBe(status);
    expect(JSON.stringify(await response.json())).toMatch(message);
    expect(engine.drawings).toEqual([]);
  });

  it("is refused with 429 where too many wait, and with 400 where the engine says no at once", async () => {
    const { stream, drawing } = await start({ limits: { queuedSequences: 2 } });
    const first = stream(baseBody({ num_samples: 2 }));
    const engine = await drawing();
    expect((await stream(baseBody())).status).toBe(429);
    engine.fail(new EngineInputError("stop strings need a tokenizer.json"));
    const refused = await first;
    expect(refused.status).toBe(400);
    expect(await refused.json()).toEqual({ detail: "stop strings need a tokenizer.json" });
  });

  it("tells of a failure behind its first token as an event", async () => {
    const { stream, drawing } = await start();
    const answering = stream(baseBody());
    const engine = await drawing();
    engine.draw(1);
    const events = reader(await answering);
    await events.next();
    engine.fail(new Error("the disk is on fire"));
    expect(parsed(await events.next())).toEqual({
      name: "error",
      error: "the disk is on fire",
      category: "server",
    });
    expect(await events.next()).toBeUndefined();
  });

  it.each(["its body is given up", "its signal aborts", "its connection is closed"])(
    "is computed no further once %s",
    async (how) => {
      const abort = new AbortController();
      const { engine, stream, drawing } = await start({ listen: how.includes("connection") });
      const request = how.includes("connection")
        ? fetch(`${open.at(-1)!.baseURL}/api/v1/stream_sample`, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify(baseBody()),
            signal: abort.signal,
          })
        : stream(baseBody(), { signal: abort.signal });
      const { call, draw } = await drawing();
      draw(1);
      const events = reader(await request);
      await events.next();
      expect(engine.cancelled).toEqual([]);
      if (how.includes("body")) await events.cancel();
      else abort.abort();
      await vi.waitFor(() => expect(engine.cancelled).toEqual([call.requestId]));
      expect(engine.inFlight).toBe(0);
      // Nothing of it is kept: its future is gone, not merely cancelled.
      const client = new RawClient(open.at(-1)!);
      await vi.waitFor(async () => {
        const { status } = await client.post("/retrieve_future", { request_id: call.requestId });
        expect(status).toBe(410);
      });
    },
  );

  it("is kept alive by a comment every 15 s, and its headers do not wait for the first token", async () => {
    const clock = new FakeClock();
    const { stream, drawing } = await start({ clock });
    const answering = stream(baseBody());
    const engine = await drawing();
    await clock.advance(1_000);
    const events = reader(await answering);
    expect(await events.next()).toMatch(/^: /);
    const second = events.next();
    await clock.advance(14_000);
    let isTold = false;
    void second.then(() => {
      isTold = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isTold).toBe(false);
    await clock.advance(1_000);
    expect(await second).toMatch(/^: /);
    const third = events.next();
    engine.draw(1);
    expect(parsed(await third)).toMatchObject({ name: "token", token_id: 10 });
    engine.finish();
    await events.next();
  });

  it("continues after its last token when a pause has taken it out of the engine, with the same seed", async () => {
    const clock = new FakeClock();
    const { engine, client, stream, drawing } = await start({ clock });
    const sessionId = await client.openSession();
    const { sampling_session_id: sampler } = await client.ok("/create_sampling_session", {
      session_id: sessionId,
      sampling_session_seq_id: 0,
      base_model: "fake/tiny",
    });
    const answering = stream(sampleBody(String(sampler), 0));
    (await drawing()).draw(2);
    const response = await answering;
    // There is no reader and no heartbeat.
    await passTime(clock, 40_000);
    await vi.waitFor(() => expect(engine.cancelled).toHaveLength(1));
    const events = reader(response);
    expect([await events.next(), await events.next()].map(parsed).map((event) => event["index"])).toEqual([
      0, 1,
    ]);
    const third = events.next();
    const again = await drawing(1);
    expect(again.call.seed).toBe(engine.drawings[0]!.call.seed);
    expect(again.call.seed).toEqual(expect.any(Number));
    again.draw(3);
    again.finish();
    expect(parsed(await third)).toMatchObject({ index: 2, token_id: 12 });
    expect(parsed(await events.next())).toMatchObject({ name: "done", total_tokens: 3 });
  });

  it("ends with an error event when the server closes", async () => {
    const { backend, stream, drawing } = await start();
    const answering = stream(baseBody());
    (await drawing()).draw(1);
    const events = reader(await answering);
    await events.next();
    const last = events.next();
    open.pop();
    await backend.close();
    expect(parsed(await last)).toMatchObject({ name: "error", category: "server" });
    expect(await events.next()).toBeUndefined();
  });
});

it("a listener that throws ends only its own sample", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tinkerts-listener-"));
  const store = await openStore(folder, systemClock);
  try {
    const engine = new SteeredEngine();
    const futures = new FutureStore(
      systemClock,
      defaultLimits,
      new OwnerShares(1, defaultLimits.resultBytes),
    );
    const adapters = new AdapterPool(engine, folder, 1, { take: async () => () => {} });
    const limits = defaultLimits;
    const runs = new SampleRuns({
      engine,
      store,
      clock: systemClock,
      futures,
      limits,
      shared: (limit) => new OwnerShares(1, limit),
      adapters,
      timeoutMs: 60_000,
      activity: new Activity(systemClock),
    });
    const start = (onToken: OnToken) =>
      runs.start(
        jobAlone(
          { owner: "local", seesAll: true },
          { info: fakeModel, weights: { type: "base" } },
          toSampleCall(endpoints.sample.request.read(baseBody(), ""), fakeModel, limits),
          { onToken },
        ),
      );
    const heard: number[] = [];
    const clumsy = start(() => {
      throw new Error("the listener tripped");
    });
    const careful = start(({ token }) => heard.push(token));
    await vi.waitFor(() => expect(engine.drawings).toHaveLength(2));
    for (const drawing of engine.drawings) drawing.draw(2);
    engine.drawings[1]!.finish();
    await vi.waitFor(() => expect([clumsy.outcome, careful.outcome]).not.toContain(undefined));
    expect(clumsy.outcome).toEqual({ type: "failed", error: "the listener tripped", category: "server" });
    expect(careful.outcome!.type).toBe("encoded");
    expect(heard).toEqual([10, 11]);
  } finally {
    await store.close();
    await rm(folder, { recursive: true });
  }
});
