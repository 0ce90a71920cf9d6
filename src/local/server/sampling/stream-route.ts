import { randomUUID } from "node:crypto";
import { SampleText } from "../../../tokenizers/sample-text.js";
import { onAbort } from "../../../transport/abort.js";
import type { Clock } from "../../../transport/clock.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import {
  encodeSampleEvent,
  KEEP_ALIVE_EVENT,
  type SampledPiece,
} from "../../../wire/sampling/sample-events.js";
import type { SampleResponse } from "../../../wire/sampling/sampling-types.js";
import type { BaseModelInfo, OnToken, SampledToken } from "../../engine/engine.js";
import type { TextTokenizer } from "../../tokenizer.js";
import { waitAmong } from "../futures/future-store.js";
import { describeFailure } from "../http/http-error.js";
import type { Route } from "../http/route.js";
import type { Services } from "../services.js";
import { jobAlone, type SampleJob, toSampleCall, toTopk } from "./sample-call.js";
import { constrained } from "./sample-constraint.js";
import type { Drawing } from "./sample-runs.js";
import { findSampledModel } from "./sampling-sessions.js";

/** Errors before this time and before the first token are ordinary HTTP errors. */
const FIRST_TOKEN_MS = 1_000;
/** Something goes over the wire at least this often. */
const KEEP_ALIVE_MS = 15_000;
/** Tokens that go out in one piece to a reader who is behind. */
const MAX_TOKENS_PER_PIECE = 256;

/** Samples token by token, as server-sent events. */
export function addStreamRoute(route: Route, services: Services): void {
  const { baseModels, store, limits, sessions, samplingSessions, sampleRuns, tokenizerOf, clock } = services;

  // Every request is a new one: what broke off was cancelled, so a number to know it by would find nothing.
  route(endpoints.streamSample, (request, call) => {
    const identity = call.get("identity");
    const { samplingSessionId, targetPromptLogprobs: targets, constraint } = request;
    const { signal } = call.req.raw;
    const answer = (info: BaseModelInfo, job: SampleJob, whilePolling: WhilePolling) => {
      const { stopStrings } = job.call;
      const draw = (onToken: OnToken) => sampleRuns.draw({ ...job, onToken });
      const textOf = textsOf(tokenizerOf(info), stopStrings);
      const { requestId } = job;
      return new StreamedSample({ requestId, draw, textOf, clock, whilePolling }).answer(signal);
    };
    if (samplingSessionId === undefined) {
      const choices = "samplingSessionId, or baseModel or modelPath";
      const model = findSampledModel(store, baseModels, identity, request, choices);
      const work = constrained(toSampleCall(request, model.info, limits), constraint);
      return answer(model.info, jobAlone(identity, model, work, { targets }), (poll) => poll());
    }
    const sampling = samplingSessions.use(identity, samplingSessionId);
    const { id, session, info, weights } = sampling;
    const work = constrained(toSampleCall(request, info, limits), constraint);
    const { owner } = session.record;
    const requestId = `${id}:stream-${randomUUID()}`;
    const job = { requestId, owner, track: id, session, weights, call: work, targets };
    return answer(info, job, (poll) => sessions.whilePolling(id, signal, poll));
  });
}

/** Waits for the next token; reading is a sign of life. */
type WhilePolling = (poll: () => Promise<void>) => Promise<void>;

/** A sample on its way to one reader. What is not read waits here, about as much as the whole result takes at most. */
class StreamedSample {
  readonly #requestId: string;
  readonly #clock: Clock;
  readonly #whilePolling: WhilePolling;
  readonly #textOf: (token: SampledToken) => string | undefined;
  readonly #drawing: Drawing;
  readonly #waiters = new Set<() => void>();
  #drawn: SampledToken[] = [];
  /** How many of them have gone out. */
  #sent = 0;
  #response: SampleResponse | undefined;
  #error: unknown;
  #isDrawn = false;
  #isOver = false;
  #unsubscribe = () => {};

  constructor(options: {
    readonly requestId: string;
    readonly draw: (onToken: OnToken) => Drawing;
    readonly textOf: (token: SampledToken) => string | undefined;
    readonly clock: Clock;
    readonly whilePolling: WhilePolling;
  }) {
    this.#requestId = options.requestId;
    this.#clock = options.clock;
    this.#whilePolling = options.whilePolling;
    this.#textOf = options.textOf;
    this.#drawing = options.draw((token) => {
      this.#drawn.push(token);
      this.#wake();
    });
    this.#drawing.result
      .then(
        (response) => {
          this.#response = response;
        },
        (error: unknown) => {
          this.#error = error;
        },
      )
      .finally(() => {
        this.#isDrawn = true;
        this.#wake();
      });
  }

  async answer(signal: AbortSignal): Promise<Response> {
    this.#unsubscribe = onAbort(signal, () => this.#end());
    await this.#wait(FIRST_TOKEN_MS, signal);
    if (this.#error !== undefined && !this.#hasUnsent) {
      this.#end();
      throw this.#error;
    }
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          // Makes the headers go out.
          if (!this.#hasUnsent && !this.#isDrawn) controller.enqueue(encoder.encode(KEEP_ALIVE_EVENT));
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
    return this.#drawn.length > this.#sent;
  }

  #wake(): void {
    for (const wake of [...this.#waiters]) wake();
  }

  #wait(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#hasUnsent || this.#isDrawn || signal.aborted) return Promise.resolve();
    return this.#whilePolling(() => waitAmong(this.#waiters, this.#clock, timeoutMs, signal));
  }

  /** The next events as text; undefined at the end. */
  async #next(signal: AbortSignal): Promise<string | undefined> {
    if (this.#isOver) return undefined;
    await this.#wait(KEEP_ALIVE_MS, signal);
    if (this.#hasUnsent) return this.#tokens();
    if (!this.#isDrawn) return KEEP_ALIVE_EVENT;
    this.#end();
    return this.#response === undefined
      ? encodeSampleEvent({ type: "error", ...describeFailure(this.#error) })
      : lastEvents(this.#requestId, this.#response);
  }

  #tokens(): string {
    const tokens = this.#drawn.slice(this.#sent, this.#sent + MAX_TOKENS_PER_PIECE);
    this.#sent += tokens.length;
    if (!this.#hasUnsent) {
      this.#drawn = [];
      this.#sent = 0;
    }
    const events = tokens.map((token) =>
      encodeSampleEvent({ type: "token", ...toPiece(token, this.#textOf(token)) }),
    );
    return events.join("");
  }

  /** Called when the reader is gone, or everything was read. */
  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#drawn = [];
    this.#unsubscribe();
    if (!this.#isDrawn) this.#drawing.cancel();
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

function lastEvents(requestId: string, response: SampleResponse): string {
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
