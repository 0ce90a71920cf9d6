import { randomUUID } from "node:crypto";
import { SampleText } from "../../../tokenizers/sample-text.js";
import { onAbort } from "../../../transport/abort.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { decodeSampleResponse } from "../../../wire/protobuf.js";
import {
  encodeSampleEvent,
  KEEP_ALIVE_EVENT,
  type SampledPiece,
} from "../../../wire/sampling/sample-events.js";
import type { BaseModelInfo, SampledToken } from "../../engine/engine.js";
import type { TextTokenizer } from "../../tokenizer.js";
import type { Future, FutureStore, Outcome } from "../futures/future-store.js";
import { HttpError } from "../http/http-error.js";
import type { Route } from "../http/route.js";
import { toSampleCall, toTopk } from "./sample-call.js";
import type { SampleJob } from "./sample-runs.js";
import type { SamplingServices } from "./sampling-routes.js";
import { findSampledModel } from "./sampling-sessions.js";

/** What is refused sooner, before the first token, is an ordinary error. */
const FIRST_TOKEN_MS = 1_000;
/** Something goes over the wire at least this often. */
const KEEP_ALIVE_MS = 15_000;
/** Tokens that go out in one piece to a reader who is behind. */
const MAX_TOKENS_PER_PIECE = 256;

/** What streaming needs of the server. */
export interface StreamServices extends SamplingServices {
  /** The tokenizer in a model's folder; null where there is none. */
  readonly tokenizerOf: (model: BaseModelInfo) => TextTokenizer | null;
}

/** Samples that are told of token by token, as server-sent events. */
export function addStreamRoute(route: Route, services: StreamServices): void {
  const { baseModels, store, limits, sessions, futures, samplingSessions, sampleRuns, tokenizerOf } =
    services;

  // Every request is a new one: what broke off was cancelled, so a number to know it by would find nothing.
  route(endpoints.streamSample, (request, call) => {
    const identity = call.get("identity");
    const { samplingSessionId, targetPromptLogprobs: targets } = request;
    const { signal } = call.req.raw;
    if (samplingSessionId === undefined) {
      const choices = "samplingSessionId, or baseModel or modelPath";
      const model = findSampledModel(store, baseModels, identity, request, choices);
      const work = toSampleCall(request, model.info, limits);
      return new StreamedSample({
        futures,
        tokenizer: tokenizerOf(model.info),
        stops: work.stopStrings,
        start: (listeners) => sampleRuns.startAlone(identity, model, work, { targets, ...listeners }),
        whilePolling: (poll) => poll(),
      }).answer(signal);
    }
    const sampling = samplingSessions.use(identity, samplingSessionId);
    const { id, session, info, weights } = sampling;
    const work = toSampleCall(request, info, limits);
    const { owner } = session.record;
    const requestId = `${id}:stream-${randomUUID()}`;
    return new StreamedSample({
      futures,
      tokenizer: tokenizerOf(info),
      stops: work.stopStrings,
      start: (listeners) =>
        sampleRuns.start({
          requestId,
          owner,
          track: id,
          session,
          weights,
          call: work,
          targets,
          ...listeners,
        }),
      whilePolling: (poll) => sessions.whilePolling(id, signal, poll),
    }).answer(signal);
  });
}

/** A sample on its way to one reader. What is not read waits here, about as much as the whole result takes at most. */
class StreamedSample {
  readonly #futures: FutureStore;
  readonly #whilePolling: (poll: () => Promise<void>) => Promise<void>;
  readonly #textOf: (token: SampledToken) => string | undefined;
  readonly #future: Future;
  #told: SampledToken[] = [];
  /** How many of them have gone out. */
  #sent = 0;
  #isOver = false;
  #unsubscribe = () => {};

  constructor(options: {
    readonly futures: FutureStore;
    readonly tokenizer: TextTokenizer | null;
    readonly stops: readonly string[];
    readonly start: (listeners: Pick<SampleJob, "onToken" | "onEnd">) => Future;
    /** Reading is a sign of life. */
    readonly whilePolling: (poll: () => Promise<void>) => Promise<void>;
  }) {
    const { futures, tokenizer, stops, start } = options;
    this.#futures = futures;
    this.#whilePolling = options.whilePolling;
    this.#textOf = textsOf(tokenizer, stops);
    this.#future = start({
      onToken: (token) => {
        this.#told.push(token);
        futures.wake(this.#future);
      },
      onEnd: () => {
        if (this.#isOver) futures.forget(this.#future);
      },
    });
  }

  async answer(signal: AbortSignal): Promise<Response> {
    this.#unsubscribe = onAbort(signal, () => this.#end());
    await this.#wait(FIRST_TOKEN_MS, signal);
    const { outcome } = this.#future;
    if (outcome?.type === "failed" && !this.#hasUnsent) {
      this.#end();
      throw new HttpError(outcome.category === "user" ? 400 : 500, outcome.error);
    }
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          // Makes the headers go out.
          if (!this.#hasUnsent && outcome === undefined) controller.enqueue(encoder.encode(KEEP_ALIVE_EVENT));
        },
        pull: async (controller) => {
          const piece = await this.#next(signal);
          if (piece !== undefined) return controller.enqueue(encoder.encode(piece));
          this.#end();
          controller.close();
        },
        cancel: () => this.#end(),
      },
      { highWaterMark: 0 },
    );
    const headers = {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    };
    return new Response(body, { headers });
  }

  get #hasUnsent(): boolean {
    return this.#told.length > this.#sent;
  }

  #wait(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#hasUnsent) return Promise.resolve();
    return this.#whilePolling(() => this.#futures.wait(this.#future, timeoutMs, signal));
  }

  /** The next events as text; undefined at the end. */
  async #next(signal: AbortSignal): Promise<string | undefined> {
    if (this.#isOver) return undefined;
    await this.#wait(KEEP_ALIVE_MS, signal);
    if (this.#hasUnsent) return this.#tokens();
    const { outcome } = this.#future;
    if (outcome !== undefined) {
      this.#end();
      return lastEvents(this.#future, outcome);
    }
    if (!this.#futures.isClosed) return KEEP_ALIVE_EVENT;
    this.#end();
    return encodeSampleEvent({ type: "error", error: "This server is closing.", category: "server" });
  }

  #tokens(): string {
    const tokens = this.#told.slice(this.#sent, this.#sent + MAX_TOKENS_PER_PIECE);
    this.#sent += tokens.length;
    if (!this.#hasUnsent) {
      this.#told = [];
      this.#sent = 0;
    }
    const events = tokens.map((token) =>
      encodeSampleEvent({ type: "token", ...toPiece(token, this.#textOf(token)) }),
    );
    return events.join("");
  }

  /** Nobody reads any more, or there is nothing left to read. */
  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#told = [];
    this.#unsubscribe();
    if (this.#future.outcome === undefined) this.#future.cancel();
    else this.#futures.forget(this.#future);
  }
}

function textsOf(
  tokenizer: TextTokenizer | null,
  stops: readonly string[],
): (token: SampledToken) => string | undefined {
  if (tokenizer === null) return () => undefined;
  const texts: SampleText[] = [];
  return ({ index, token, stopReason }) => {
    texts[index] ??= new SampleText(tokenizer, stops);
    return texts[index].push(token, stopReason);
  };
}

function toPiece(drawn: SampledToken, text: string | undefined): SampledPiece {
  const { index: sequence, position, token, logprob, topk, stopReason } = drawn;
  const row = topk && toTopk(topk)[0];
  return {
    sequence,
    position,
    token,
    text,
    logprob,
    ...(row == null ? {} : { topk: row }),
    ...(stopReason === undefined ? {} : { stopReason }),
  };
}

function lastEvents({ requestId }: Future, outcome: Outcome): string {
  if (outcome.type === "failed") return encodeSampleEvent({ ...outcome, type: "error" });
  if (outcome.type !== "encoded") throw new Error("The engine gave no samples.");
  const response = decodeSampleResponse(outcome.bytes);
  const sequences = response.sequences.map((sequence, index) => ({
    ...sequence,
    sequenceId: `${requestId}:${index}`,
  }));
  const events = sequences.map(({ stopReason, tokens }, sequence) => {
    const result = sequence === sequences.length - 1 ? { ...response, sequences } : undefined;
    return encodeSampleEvent({ type: "done", sequence, stopReason, totalTokens: tokens.length, result });
  });
  return events.join("");
}
