import {
  APIConnectionError,
  APIError,
  APITimeoutError,
  RequestFailedError,
  TinkerError,
} from "../../errors.js";
import type { TextTokenizer } from "../../tokenizers/index.js";
import type { SampleText } from "../../tokenizers/sample-text.js";
import { BACK_OFF } from "../../transport/index.js";
import {
  type SampledPiece,
  type SampleEvent,
  SampleEventReader,
  type SampleRequest,
  type SampleResponse,
  type StopReason,
} from "../../wire/index.js";
import type { ClientContext } from "../context.js";

/** Statuses of servers without this route. */
const CANNOT_STREAM: readonly number[] = [404, 405];

/** Servers send something every 15 s; a shorter timeout must not break a stream that is merely slow. */
const MIN_SILENCE_MS = 30_000;

/** The parts of a client that reading a stream needs. */
export interface StreamReaderOptions {
  readonly context: Pick<ClientContext, "http" | "clock" | "logger">;
  readonly request: SampleRequest;
  /** Time without data, at least half a minute, after which the connection counts as broken. */
  readonly timeoutMs: number;
  readonly maxRetries: number;
  readonly signal: AbortSignal;
  /** Sends the request; the body of its answer arrives in pieces. */
  readonly open: () => Promise<Response>;
  readonly tell: (piece: SampledPiece) => void | Promise<void>;
}

/**
 * Reads one streamed sample to its result and yields each token once. After a break it continues behind the yielded
 * tokens if a seed guarantees the same tokens. Undefined if the server cannot stream.
 */
export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #received: { readonly tokens: number[]; readonly logprobs: number[]; stopReason?: StopReason }[];
  #receivedTokens = 0;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
    this.#received = Array.from({ length: options.request.numSamples ?? 1 }, () => ({
      tokens: [],
      logprobs: [],
    }));
  }

  async read(): Promise<SampleResponse | undefined> {
    const { context, maxRetries, signal, open } = this.#options;
    let retries = 0;
    for (;;) {
      let response: Response;
      try {
        response = await open();
      } catch (error) {
        const cannot = error instanceof APIError && CANNOT_STREAM.includes(error.status);
        if (cannot && this.#receivedTokens === 0) return undefined;
        throw error;
      }
      const toldBefore = this.#receivedTokens;
      try {
        return await this.#follow(response);
      } catch (error) {
        if (!(error instanceof APIConnectionError) || signal.aborted) throw error;
        this.#checkSeed(error);
        if (this.#receivedTokens > toldBefore) retries = 0;
        if (retries >= maxRetries) throw error;
        const delayMs = context.http.backOffMs(BACK_OFF.request, retries, error);
        retries += 1;
        context.logger.info(`${error.message} Asking again in ${(delayMs / 1000).toFixed(1)} s.`);
        await context.clock.sleep(delayMs, signal);
      }
    }
  }

  #checkSeed(cause: Error): void {
    if (this.#receivedTokens === 0 || this.#options.request.samplingParams?.seed !== undefined) return;
    throw new APIConnectionError(
      `The stream broke after ${this.#receivedTokens} tokens, and cannot continue without a seed. Set samplingParams.seed to make streams resumable. (${cause.message})`,
      { cause },
    );
  }

  async #follow(response: Response): Promise<SampleResponse> {
    let isDone = false;
    for await (const event of this.#eventsOf(response)) {
      switch (event.type) {
        case "token":
          await this.#take(event);
          break;
        case "done":
          if (event.result !== undefined) return event.result;
          this.#sequence(event.sequence).stopReason = event.stopReason;
          isDone = true;
          break;
        case "error":
          throw failure(event);
        default:
          event satisfies never;
      }
    }
    if (!isDone) throw new APIConnectionError("The stream ended before the sample did.");
    return this.#resultOfTokens();
  }

  async #take({ type: _, ...piece }: Extract<SampleEvent, { type: "token" }>): Promise<void> {
    const { sequence, position, token, logprob } = piece;
    const { tokens, logprobs } = this.#sequence(sequence);
    if (position < tokens.length) {
      if (tokens[position] === token) return;
      throw new TinkerError(
        "The stream broke, and the server sampled different tokens on the second attempt, so it cannot be continued.",
      );
    }
    if (position > tokens.length)
      throw new TinkerError(`The server left out token ${tokens.length} of a stream.`);
    tokens.push(token);
    logprobs.push(logprob);
    this.#receivedTokens += 1;
    await this.#options.tell(piece);
  }

  #sequence(index: number) {
    const sequence = this.#received[index];
    if (sequence !== undefined) return sequence;
    throw new TinkerError(`The server sent sample ${index}, but ${this.#received.length} were requested.`);
  }

  /** For servers whose stream ends without the complete response. */
  #resultOfTokens(): SampleResponse {
    return {
      sequences: this.#received.map(({ tokens, logprobs, stopReason = "stop" }) => ({
        stopReason,
        sequenceId: null,
        tokens: Int32Array.from(tokens),
        logprobs: Float32Array.from(logprobs),
        topkLogprobs: null,
      })),
      promptLogprobs: null,
      topkPromptLogprobs: null,
      targetPromptLogprobs: null,
      promptCacheHitTokens: 0,
      promptAltTokens: null,
    };
  }

  async *#eventsOf({ body, headers }: Response): AsyncGenerator<SampleEvent, void, undefined> {
    const reader = body?.getReader();
    const text = new TextDecoder();
    const events = new SampleEventReader();
    try {
      const kind = headers.get("content-type") ?? "";
      if (reader === undefined || !kind.startsWith("text/event-stream"))
        throw new APIConnectionError(
          `The server answered ${kind || "nothing"} where a stream was asked for.`,
        );
      for (;;) {
        const { done, value } = await this.#inTime(reader.read());
        if (done) return;
        yield* events.push(text.decode(value, { stream: true }));
      }
    } finally {
      reader?.cancel().catch(() => {});
    }
  }

  #inTime<T>(reading: Promise<T>): Promise<T> {
    const { context } = this.#options;
    const timeoutMs = Math.max(this.#options.timeoutMs, MIN_SILENCE_MS);
    if (!Number.isFinite(timeoutMs)) return reading;
    return new Promise((resolve, reject) => {
      const cancelTimer = context.clock.setTimer(
        () => reject(new APITimeoutError(`Nothing came over the stream for ${timeoutMs / 1000} s.`)),
        timeoutMs,
      );
      reading.then(resolve, reject).finally(cancelTimer);
    });
  }
}

function failure({ error, category }: Extract<SampleEvent, { type: "error" }>): RequestFailedError {
  return new RequestFailedError(`The sample failed: ${error}`, {
    requestId: "stream",
    category: category === "user" || category === "server" ? category : "unknown",
  });
}

/** Turns a complete result into a stream. */
export function* piecesOf({ sequences }: SampleResponse): Generator<SampledPiece, void, undefined> {
  for (const [sequence, { tokens, logprobs, topkLogprobs, stopReason }] of sequences.entries()) {
    for (const [position, token] of tokens.entries()) {
      const topk = topkLogprobs?.[position];
      yield {
        sequence,
        position,
        token,
        text: undefined,
        logprob: logprobs?.[position] ?? Number.NaN,
        ...(topk ? { topk } : {}),
        ...(position === tokens.length - 1 ? { stopReason } : {}),
      };
    }
  }
}

/** Adds text if a server sends tokens without it: from the model's tokenizer, if it can be loaded. */
export function withText(
  { samplingParams }: SampleRequest,
  getTokenizer: () => Promise<TextTokenizer>,
  tell: (piece: SampledPiece) => void,
): (piece: SampledPiece) => Promise<void> {
  const stops = [samplingParams?.stop ?? []].flat().filter((stop) => typeof stop === "string");
  const texts: SampleText[] = [];
  const load = async () => {
    const { SampleText: Text } = await import("../../tokenizers/sample-text.js");
    const tokenizer = await getTokenizer();
    return () => new Text(tokenizer, stops);
  };
  let loading: Promise<(() => SampleText) | undefined> | undefined;
  return async (piece) => {
    if (piece.text !== undefined) return tell(piece);
    loading ??= load().catch(() => undefined);
    const newText = await loading;
    if (newText === undefined) return tell(piece);
    const { sequence, token, stopReason } = piece;
    texts[sequence] ??= newText();
    tell({ ...piece, text: texts[sequence].push(token, stopReason) });
  };
}
