import { NotFoundError, TinkerError, ValidationError } from "../../errors.js";
import {
  type Accepted,
  type APIFuture,
  deliver,
  deliverPlain,
  perform,
  type QueueStateLogger,
  SessionFuturesPoller,
  startOperation,
  valueOrThrow,
  withSignals,
} from "../../futures/index.js";
import { type AttachOptions, capturesContent, Session, type SpanAttributes } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import {
  HttpClient,
  linkSignals,
  platform,
  REQUEST_FIELDS,
  REQUEST_OPTIONS,
  type RequestOptions,
  Semaphore,
  throwIfAborted,
} from "../../transport/index.js";
import {
  boolean,
  checkTinkerPath,
  encodeRequest,
  endpoints,
  estimateModelInputBytes,
  type FieldsOf,
  type ModelInputLike,
  optional,
  optionTable,
  positiveInteger,
  type SampledPiece,
  type SampleRequest,
  type SampleResponse,
  type SamplerInfo,
  withDefault,
} from "../../wire/index.js";
import {
  CLIENT_OPTIONS,
  type ClientContext,
  createContext,
  queueLogger,
  type ServiceClientOptions,
} from "../context.js";
import { BaseModelName } from "../observers.js";
import { ProgressWatch } from "./progress-watch.js";
import {
  checkHonoured,
  checkSampleArguments,
  checkStreamArguments,
  type SampleArguments,
  type StreamArguments,
  type StreamRequest,
  withFirstToken,
} from "./sample-arguments.js";
import { SampleStream } from "./sample-stream.js";
import { piecesOf, StreamReader, withText } from "./stream-reader.js";

/** Settings of a sampler for all its samples. */
export interface SamplingClientOptions {
  /** The server keeps stability information of every sampled sequence, for `stable_reinforce` training. */
  recordStabilityInfo?: boolean | undefined;
}

/** Options of a call that makes a sampler. */
export const SAMPLING_CLIENT_FIELDS = {
  ...REQUEST_FIELDS,
  recordStabilityInfo: withDefault(boolean, false),
} satisfies FieldsOf<SamplingClientOptions & RequestOptions>;

/** Options of a call that makes a sampler and chooses its weights itself. */
export const SAMPLING_CLIENT_OPTIONS = optionTable(SAMPLING_CLIENT_FIELDS);

const LOGPROBS_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  promptLogprobsLastN: optional(positiveInteger),
});

/** Weights of a sampler: a base model or a path. */
export type SamplerSource =
  | { baseModel: string; modelPath?: undefined }
  /** Weights saved for sampling, by their `tinker://` path. */
  | { modelPath: string; baseModel?: undefined };

/** Plain data that identifies a sampler: survives `postMessage` and JSON, contains no credential. */
export interface SamplerHandle {
  samplingSessionId: string;
  session: AttachOptions;
  baseURL: string;
  recordStabilityInfo: boolean;
}

/** Each copy numbers its requests from its own billion; all numbers must stay exact as doubles. */
const NUMBERS_PER_COPY = 1_000_000_000;
const MAX_RANDOM_COPY = Math.floor(Number.MAX_SAFE_INTEGER / NUMBERS_PER_COPY) - 1;

/** Samples from a base model or from saved weights. */
export class SamplingClient {
  readonly samplingSessionId: string;
  readonly #context: ClientContext;
  readonly #recordStabilityInfo: boolean;
  readonly #concurrency: Semaphore;
  readonly #queue: QueueStateLogger;
  readonly #progress: ProgressWatch;
  #nextNumber: number | undefined = 0;
  #copyId = 0;
  #joining: Promise<void> | undefined;
  #poller: SessionFuturesPoller | undefined;
  #ownsContext = false;
  #cannotStream = false;
  #canConstrain: boolean | undefined;
  readonly #baseModel: BaseModelName;

  /** Made by a ServiceClient or a TrainingClient. */
  constructor(
    context: ClientContext,
    samplingSessionId: string,
    options: SamplingClientOptions = {},
    baseModel?: BaseModelName,
  ) {
    const { config } = context.session;
    this.#baseModel = baseModel ?? new BaseModelName(undefined, () => this.getBaseModel());
    this.#context = context;
    this.samplingSessionId = samplingSessionId;
    this.#recordStabilityInfo = options.recordStabilityInfo ?? false;
    this.#concurrency = new Semaphore(
      config.sampleUseRetrieveFutures ? Number.POSITIVE_INFINITY : config.sampleMaxConcurrentRequests,
    );
    this.#queue = queueLogger(context, samplingSessionId);
    this.#progress = new ProgressWatch(context.clock, config.sampleEnableStuckDetection);
  }

  /** @internal */
  static async create(
    context: ClientContext,
    source: SamplerSource,
    options: SamplingClientOptions & RequestOptions = {},
    model?: BaseModelName,
  ): Promise<SamplingClient> {
    const { baseModel, modelPath } = source;
    if (modelPath !== undefined) checkTinkerPath(modelPath, "modelPath");
    if ((modelPath === undefined) === (baseModel === undefined)) {
      const given = baseModel === undefined ? "neither" : "both";
      throw new ValidationError(
        "baseModel",
        `createSamplingClient needs a baseModel or a modelPath, and got ${given}`,
      );
    }
    const { session } = context;
    const { samplingSessionId } = await deliverPlain(
      context,
      endpoints.createSamplingSession,
      {
        sessionId: session.id ?? "",
        samplingSessionSeqId: session.nextSamplingSessionSeqId(),
        baseModel,
        modelPath,
      },
      options,
    );
    if (typeof samplingSessionId !== "string")
      throw new TinkerError("The server opened a sampling session without an id.");
    const known = baseModel === undefined ? model : new BaseModelName(baseModel, async () => baseModel);
    return new SamplingClient(context, samplingSessionId, options, known);
  }

  /** Generates answers to a prompt. */
  sample(request: SampleArguments, options: RequestOptions = {}): APIFuture<SampleResponse> {
    const checked = checkSampleArguments(request);
    return this.#start(checked, REQUEST_OPTIONS.check(options, "sample"), async (work) => {
      const response = await this.#watched("sample", checked, work);
      checkHonoured(checked, response);
      return response;
    });
  }

  /**
   * Samples one answer and yields its tokens as they are sampled. A server that cannot stream sends all tokens at the
   * end. After a lost connection, the stream continues if `samplingParams.seed` is given, and fails otherwise.
   */
  stream(request: StreamArguments, options: RequestOptions = {}): SampleStream {
    const checked = checkStreamArguments(request);
    const settings = REQUEST_OPTIONS.check(options, "stream");
    const progress = this.#progress.begin(settings.signal);
    return new SampleStream(async (tell, left) => {
      const link = linkSignals(progress.signal, left);
      try {
        return await withSignals(this.#context, link.signal, (signal) =>
          this.#watched("sample", checked, () =>
            this.#stream(
              checked,
              { ...settings, signal },
              withText(checked, () => this.getTokenizer({ signal }), tell),
            ),
          ),
        );
      } catch (error) {
        if (!this.#context.closed.aborted && !link.signal.aborted)
          this.#context.telemetry.logException(error);
        throw error;
      } finally {
        link.release();
        progress.end();
      }
    });
  }

  /** Whether the server keeps streams to their `constraint`. The built-in backend does; Tinker's service does not. */
  async canConstrain(options: RequestOptions = {}): Promise<boolean> {
    this.#canConstrain ??= await this.getInfo(options).then(
      ({ takesConstraints }) => takesConstraints === true,
      (error: unknown) => {
        if (error instanceof NotFoundError) return false;
        throw error;
      },
    );
    return this.#canConstrain;
  }

  async #stream(
    request: StreamRequest,
    options: RequestOptions & { signal: AbortSignal },
    tell: (piece: SampledPiece) => Promise<void>,
  ): Promise<SampleResponse> {
    const { signal } = options;
    // Another server would ignore the field.
    if (request.constraint !== undefined && (this.#cannotStream || !(await this.canConstrain(options))))
      throw new ValidationError(
        "constraint",
        "constraint is not possible here: this server does not constrain what it samples, as the built-in backend does",
      );
    const streamed = this.#cannotStream ? undefined : await this.#read(request, options, tell);
    const response =
      streamed === undefined
        ? await this.#start(request, options, (work) => work())
        : withFirstToken(request, streamed);
    checkHonoured(request, response);
    if (streamed !== undefined) return response;
    this.#cannotStream = true;
    for (const piece of piecesOf(response)) {
      throwIfAborted(signal);
      await tell(piece);
    }
    return response;
  }

  /** Undefined if the server cannot stream. */
  async #read(
    request: StreamRequest,
    options: RequestOptions & { signal: AbortSignal },
    tell: (piece: SampledPiece) => Promise<void>,
  ): Promise<SampleResponse | undefined> {
    const { http } = this.#context;
    const { signal } = options;
    const outgoing = this.#outgoing(endpoints.streamSample, request);
    const delivery = samplingDelivery(options, signal);
    const leave = await this.#concurrency.acquire(signal);
    try {
      return await new StreamReader({
        context: this.#context,
        request,
        signal,
        timeoutMs: options.timeout ?? http.timeoutMs,
        maxRetries: http.maxRetriesOf(options),
        open: async () =>
          valueOrThrow(
            await deliver(this.#context, outgoing, delivery, (attempt) =>
              http.open({ ...attempt, accept: "text/event-stream" }),
            ),
          ),
        tell: (piece) => {
          this.#progress.noteProgress();
          return tell(piece);
        },
      }).read();
    } finally {
      leave();
    }
  }

  /**
   * The logprob of every prompt token given the tokens before it; null for the first and for tokens that were not
   * requested.
   */
  computeLogprobs(
    prompt: ModelInputLike,
    options: RequestOptions & { promptLogprobsLastN?: number | undefined } = {},
  ): APIFuture<(number | null)[]> {
    const { promptLogprobsLastN, ...settings } = LOGPROBS_OPTIONS.check(options, "computeLogprobs");
    const checked = checkSampleArguments({
      prompt,
      samplingParams: { maxTokens: 1 },
      includePromptLogprobs: true,
      promptLogprobsLastN,
    });
    return this.#start(checked, settings, async (work) => {
      const response = await this.#watched("logprobs", checked, work);
      checkHonoured(checked, response);
      if (response.promptLogprobs === null) throw new TinkerError("The server returned no prompt logprobs.");
      return response.promptLogprobs;
    });
  }

  /** The base model this sampler runs on. */
  async getBaseModel(options: RequestOptions = {}): Promise<string> {
    return (await this.getInfo(options)).baseModel;
  }

  /** Tokenizer of the base model: from the package, the cache, the server or the hub. Loaded once per process. */
  async getTokenizer(options: LoadTokenizerOptions & RequestOptions = {}): Promise<Tokenizer> {
    const { signal, timeout, maxRetries, headers, ...loading } = options;
    const modelName = await this.getBaseModel({ signal, timeout, maxRetries, headers });
    const { tokenizerOfServer } = await import("../../tokenizers/load.js");
    return await tokenizerOfServer(this.#context.http, { modelName }, { ...loading, signal });
  }

  /** Asks the server for this sampler's base model and weights. */
  async getInfo(options: RequestOptions = {}): Promise<SamplerInfo> {
    const message = { samplerId: this.samplingSessionId };
    return deliverPlain(
      this.#context,
      endpoints.getSampler,
      message,
      REQUEST_OPTIONS.check(options, "getInfo"),
    );
  }

  /**
   * Returns plain data for a worker or another process; `SamplingClient.fromSamplerHandle` turns it into a client
   * there.
   */
  getSamplerHandle(): SamplerHandle {
    const { session } = this.#context;
    return {
      samplingSessionId: this.samplingSessionId,
      session: { sessionId: session.id ?? "", config: session.config, dynamicConfig: session.dynamicConfig },
      baseURL: this.#context.http.baseURL,
      recordStabilityInfo: this.#recordStabilityInfo,
    };
  }

  /** Makes `JSON.stringify` return the client's handle. */
  toJSON(): SamplerHandle {
    return this.getSamplerHandle();
  }

  /** Makes a client from the handle of a sampler, with this process's own credentials. Close it when done. */
  static async fromSamplerHandle(
    handle: SamplerHandle,
    options: ServiceClientOptions = {},
  ): Promise<SamplingClient> {
    const settings = CLIENT_OPTIONS.check(options, "fromSamplerHandle");
    const http = new HttpClient({ ...settings, baseURL: settings.baseURL ?? handle.baseURL });
    const session = await Session.attach(http, handle.session);
    const context = createContext(session, settings);
    const client = new SamplingClient(context, handle.samplingSessionId, handle);
    client.#ownsContext = true;
    if (session.config.sampleJoinSamplingSession) client.#nextNumber = undefined;
    else client.#becomeCopy(1 + Math.floor(http.random() * MAX_RANDOM_COPY));
    return client;
  }

  /** Closes a client made from a handle. Others close with their ServiceClient. */
  async close(): Promise<void> {
    if (!this.#ownsContext) return;
    this.#context.close();
    await this.#context.session.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #start<R>(
    request: SampleRequest,
    options: RequestOptions,
    finish: (work: () => Promise<SampleResponse>) => Promise<R>,
  ): APIFuture<R> {
    // The only part that may not fit into JSON: the caller gets the error before anything is sent.
    if (request.targetPromptLogprobs !== undefined) {
      const { endpoint, message } = this.#outgoing(endpoints.sample, request, 0);
      encodeRequest(endpoint, message);
    }
    // All attempts have one number, so that a request sent twice counts once.
    let number = this.#takeNumber();
    const progress = this.#progress.begin(options.signal);
    return startOperation(this.#context, progress.signal, (signal, onAccepted) =>
      finish(async () => {
        let leave: (() => void) | undefined;
        let accepted: Accepted | undefined;
        try {
          if (number === undefined) {
            await this.#join(signal);
            number = this.#takeNumber()!;
          }
          leave = await this.#concurrency.acquire(signal);
          const response = await perform(this.#context, this.#outgoing(endpoints.sample, request, number), {
            ...samplingDelivery(options, signal),
            queue: this.#queue,
            poller: this.#sessionPoller(),
            onAccepted(by) {
              accepted = by;
              onAccepted(by);
            },
          });
          this.#progress.noteProgress();
          return {
            ...withFirstToken(request, response),
            sequences: response.sequences.map((sequence, index) => ({
              ...sequence,
              sequenceId: accepted?.sampleSequenceIds?.[index] ?? sequence.sequenceId,
            })),
          };
        } catch (error) {
          const { dynamicConfig } = this.#context.session;
          if (signal.aborted && accepted !== undefined && dynamicConfig.sampleCancelEnabled)
            this.#context.cancelQueue.add(accepted.requestId);
          throw error;
        } finally {
          leave?.();
          progress.end();
        }
      }),
    );
  }

  /** Prompt and answer as text, for a span that may contain them. */
  async #contents(request: SampleRequest, { sequences }: SampleResponse): Promise<SpanAttributes> {
    const tokenizer = await this.getTokenizer();
    const parts = (tokens: ArrayLike<number>) => [{ type: "text", content: tokenizer.decode(tokens) }];
    const messages = sequences.map(({ tokens, stopReason }) => ({
      ...{ role: "assistant", parts: parts(tokens), finish_reason: stopReason },
    }));
    return {
      // Prompts with images have no tokens that can be written as text.
      ...(request.prompt.isText && {
        "gen_ai.input.messages": JSON.stringify([{ role: "user", parts: parts(request.prompt.toInts()) }]),
      }),
      "gen_ai.output.messages": JSON.stringify(messages),
    };
  }

  /** The work of a request, seen by those who count tokens. */
  #watched(
    kind: "sample" | "logprobs",
    request: SampleRequest,
    work: () => Promise<SampleResponse>,
  ): Promise<SampleResponse> {
    const observed = { type: "sample", kind, model: this.#baseModel, request } as const;
    return this.#context.tokenObservers.watch(
      observed,
      async (span) => {
        const response = await work();
        if (capturesContent(platform)) span.set(await this.#contents(request, response).catch(() => ({})));
        return response;
      },
      (response) => response,
    );
  }

  /**
   * A sample as data. It is encoded when it is sent: thousands may wait, and as JSON a prompt takes several times its
   * memory.
   */
  #outgoing<E extends typeof endpoints.sample | typeof endpoints.streamSample>(
    endpoint: E,
    request: StreamRequest,
    seqId?: number,
  ) {
    const { samplingSessionId } = this;
    const recordStabilityInfo = this.#recordStabilityInfo || undefined;
    return {
      endpoint,
      message: { ...request, samplingSessionId, seqId, recordStabilityInfo },
      limit: this.#context.samplingLimits,
      bytes: estimateModelInputBytes(request.prompt),
    };
  }

  #takeNumber(): number | undefined {
    return this.#nextNumber === undefined ? undefined : this.#nextNumber++;
  }

  #becomeCopy(copyId: number): void {
    this.#copyId = copyId;
    this.#nextNumber = copyId * NUMBERS_PER_COPY;
  }

  /** Asks the server once for this copy's number. */
  #join(signal: AbortSignal): Promise<void> {
    const { samplingSessionId } = this;
    this.#joining ??= deliverPlain(
      this.#context,
      endpoints.joinSamplingSession,
      { samplingSessionId },
      {},
    ).then(
      ({ clientCounter }) => this.#becomeCopy(clientCounter),
      (error) => {
        this.#joining = undefined;
        throw error;
      },
    );
    signal.throwIfAborted();
    return this.#joining;
  }

  #sessionPoller(): SessionFuturesPoller | undefined {
    if (!this.#context.session.config.sampleUseRetrieveFutures) return undefined;
    this.#poller ??= new SessionFuturesPoller(this.#context, this.samplingSessionId, () => this.#copyId);
    return this.#poller;
  }
}

/** Tells the server that samplers back off together when it is busy, and retry quickly only when asked to. */
function samplingDelivery(options: RequestOptions, signal: AbortSignal) {
  return {
    ...options,
    signal,
    headers: { "X-Tinker-Sampling-Backpressure": "1", ...options.headers },
    maxRetries: options.maxRetries ?? 0,
  };
}
