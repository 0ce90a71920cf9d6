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

/** Statuses of servers that do not know the route. */
const CANNOT_STREAM: readonly number[] = [404, 405];

/** Servers send something every 15 s; an impatient timeout must not break what is merely slow. */
const MIN_SILENCE_MS = 30_000;

/** What reading a stream needs of its client. */
export interface StreamReaderOptions {
  readonly context: Pick<ClientContext, "http" | "clock" | "logger">;
  readonly request: SampleRequest;
  /** Without anything to read for this long, half a minute at least, the connection counts as broken. */
  readonly timeoutMs: number;
  readonly maxRetries: number;
  readonly signal: AbortSignal;
  /** Sends the request; the body of its answer comes piece by piece. */
  readonly open: () => Promise<Response>;
  readonly tell: (piece: SampledPiece) => void | Promise<void>;
}

/**
 * Reads one streamed sample to its result, each token told once. After a break it goes on behind what was told where a
 * seed makes sure that the same tokens come again. Undefined where the server cannot stream.
 */
export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #told: { readonly tokens: number[]; readonly logprobs: number[]; stopReason?: StopReason }[];
  #toldTokens = 0;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
    this.#told = Array.from({ length: options.request.numSamples ?? 1 }, () => ({
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
        if (cannot && this.#toldTokens === 0) return undefined;
        throw error;
      }
      const toldBefore = this.#toldTokens;
      try {
        return await this.#follow(response);
      } catch (error) {
        if (!(error instanceof APIConnectionError) || signal.aborted) throw error;
        this.#checkSeed(error);
        if (this.#toldTokens > toldBefore) retries = 0;
        if (retries >= maxRetries) throw error;
        const delayMs = context.http.backOffMs(BACK_OFF.request, retries, error);
        retries += 1;
        context.logger.info(`${error.message} Asking again in ${(delayMs / 1000).toFixed(1)} s.`);
        await context.clock.sleep(delayMs, signal);
      }
    }
  }

  #checkSeed(cause: Error): void {
    if (this.#toldTokens === 0 || this.#options.request.samplingParams?.seed !== undefined) return;
    throw new APIConnectionError(
      `The stream broke after ${this.#toldTokens} tokens, and cannot go on behind them without a seed. Give samplingParams.seed, and a broken stream goes on. (${cause.message})`,
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
        "The stream broke, and the server drew other tokens when it was asked again: they do not go on from what was told.",
      );
    }
    if (position > tokens.length)
      throw new TinkerError(`The server left out token ${tokens.length} of a stream.`);
    tokens.push(token);
    logprobs.push(logprob);
    this.#toldTokens += 1;
    await this.#options.tell(piece);
  }

  #sequence(index: number) {
    const sequence = this.#told[index];
    if (sequence !== undefined) return sequence;
    throw new TinkerError(`The server tells of sample ${index}, but ${this.#told.length} were asked for.`);
  }

  /** For servers that end a stream without saying it all again. */
  #resultOfTokens(): SampleResponse {
    return {
      sequences: this.#told.map(({ tokens, logprobs, stopReason = "stop" }) => ({
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

/** A whole result in the form of a stream. */
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

/** Adds the text where a server tells tokens without: from the model's tokenizer, loaded then, where it can be had. */
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
