import { TinkerError, ValidationError } from "../../errors.js";
import {
  type Accepted,
  type APIFuture,
  type AttemptSettings,
  attemptOf,
  deliver,
  deliverPlain,
  handIn,
  type QueueStateLogger,
  resultOf,
  SessionFuturesPoller,
  startOperation,
  withSignals,
} from "../../futures/index.js";
import { type AttachOptions, Session } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import {
  HttpClient,
  linkSignals,
  type RequestOptions,
  Semaphore,
  throwIfAborted,
} from "../../transport/index.js";
import {
  checkTinkerPath,
  encodeRequest,
  endpoints,
  type ModelInputLike,
  type SampledPiece,
  type SampleRequest,
  type SampleResponse,
  type SamplerInfo,
} from "../../wire/index.js";
import { type ClientContext, createContext, queueLogger } from "../context.js";
import type { ServiceClientOptions } from "../service/service-client.js";
import { ProgressWatch } from "./progress-watch.js";
import { checkArguments, checkHonoured, type SampleArguments, withFirstToken } from "./sample-arguments.js";
import { SampleStream } from "./sample-stream.js";
import { piecesOf, StreamReader, withText } from "./stream-reader.js";

/** Settings of a sampler for all its samples. */
export interface SamplingClientOptions {
  /** The server keeps stability information of every sampled sequence, for `stable_reinforce` training. */
  recordStabilityInfo?: boolean | undefined;
}

/** Where a sampler's weights come from: one of the two. */
export type SamplerSource =
  | { baseModel: string; modelPath?: undefined }
  /** Weights saved for sampling, by their `tinker://` path. */
  | { modelPath: string; baseModel?: undefined };

/** Plain data that names a sampler: survives `postMessage` and JSON, carries no credential. */
export interface SamplerHandle {
  samplingSessionId: string;
  session: AttachOptions;
  baseURL: string;
  recordStabilityInfo: boolean;
}

const KIND = endpoints.sample.future;

/** Sequence numbers of a copy start at its own billion, and must stay exact as doubles. */
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

  /** Made by a ServiceClient or a TrainingClient. */
  constructor(context: ClientContext, samplingSessionId: string, options: SamplingClientOptions = {}) {
    const { config } = context.session;
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
    return new SamplingClient(context, samplingSessionId, options);
  }

  /** Generates answers to a prompt. */
  sample(request: SampleArguments, options: RequestOptions = {}): APIFuture<SampleResponse> {
    const checked = checkArguments(request);
    return this.#start(checked, options, (response) => {
      checkHonoured(checked, response);
      return response;
    });
  }

  /**
   * The same as `sample`, token by token as they are drawn. A server that cannot do this gives all tokens at the end.
   * A connection that breaks is made again where `samplingParams.seed` is given, and fails the stream where it is not.
   */
  stream(request: SampleArguments, options: RequestOptions = {}): SampleStream {
    const checked = checkArguments(request);
    const progress = this.#progress.begin(options.signal);
    return new SampleStream(async (tell, left) => {
      const link = linkSignals(progress.signal, left);
      try {
        return await withSignals(this.#context, link.signal, (signal) =>
          this.#stream(
            checked,
            { ...options, signal },
            withText(checked, () => this.getTokenizer({ signal }), tell),
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

  async #stream(
    request: SampleRequest,
    options: RequestOptions & { signal: AbortSignal },
    tell: (piece: SampledPiece) => Promise<void>,
  ): Promise<SampleResponse> {
    const { signal } = options;
    const streamed = this.#cannotStream ? undefined : await this.#read(request, options, tell);
    const response =
      streamed === undefined
        ? await this.#start(request, options, (whole) => whole)
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

  /** Undefined where the server cannot stream. */
  async #read(
    request: SampleRequest,
    options: RequestOptions & { signal: AbortSignal },
    tell: (piece: SampledPiece) => Promise<void>,
  ): Promise<SampleResponse | undefined> {
    const { http, samplingLimits } = this.#context;
    const { signal } = options;
    const encode = () =>
      encodeRequest(endpoints.streamSample, {
        ...request,
        samplingSessionId: this.samplingSessionId,
        recordStabilityInfo: this.#recordStabilityInfo || undefined,
      });
    const accept = "text/event-stream";
    const leave = await this.#concurrency.acquire(signal);
    try {
      return await new StreamReader({
        context: this.#context,
        request,
        signal,
        timeoutMs: options.timeout ?? http.timeoutMs,
        maxRetries: http.maxRetriesOf(options),
        open: () =>
          samplingLimits.send(request, options, encode, (encoded, delivery) => {
            const send = (settings: AttemptSettings) =>
              http.open({ ...attemptOf(encoded, settings), accept });
            return deliver(this.#context, send, delivery);
          }),
        tell: (piece) => {
          this.#progress.noteProgress();
          return tell(piece);
        },
      }).read();
    } finally {
      leave();
    }
  }

  /** The logprob of every prompt token given those before it; null for the first and for tokens not asked for. */
  computeLogprobs(
    prompt: ModelInputLike,
    options: RequestOptions & { promptLogprobsLastN?: number | undefined } = {},
  ): APIFuture<(number | null)[]> {
    const checked = endpoints.sample.request.check(
      {
        prompt,
        samplingParams: { maxTokens: 1 },
        promptLogprobs: true,
        promptLogprobsLastN: options.promptLogprobsLastN,
      },
      "",
    );
    return this.#start(checked, options, (response) => {
      checkHonoured(checked, response);
      if (response.promptLogprobs === null) throw new TinkerError("The server returned no prompt logprobs.");
      return response.promptLogprobs;
    });
  }

  /** The base model this sampler runs on. */
  async getBaseModel(options: RequestOptions = {}): Promise<string> {
    return (await this.getInfo(options)).baseModel;
  }

  /** The tokenizer of the base model: from the package, the cache, the server or the hub. Loaded once for the process. */
  async getTokenizer(options: LoadTokenizerOptions & RequestOptions = {}): Promise<Tokenizer> {
    const { signal, timeout, maxRetries, headers, ...loading } = options;
    const modelName = await this.getBaseModel({ signal, timeout, maxRetries, headers });
    const { tokenizerOfServer } = await import("../../tokenizers/load.js");
    return await tokenizerOfServer(this.#context.http, { modelName }, { ...loading, signal });
  }

  /** What the server knows of this sampler. */
  getInfo(options: RequestOptions = {}): Promise<SamplerInfo> {
    return deliverPlain(this.#context, endpoints.getSampler, { samplerId: this.samplingSessionId }, options);
  }

  /** Plain data to send to a worker or another process; there `SamplingClient.fromSamplerHandle` makes a client of it. */
  getSamplerHandle(): SamplerHandle {
    const { session } = this.#context;
    return {
      samplingSessionId: this.samplingSessionId,
      session: { sessionId: session.id ?? "", config: session.config, dynamicConfig: session.dynamicConfig },
      baseURL: this.#context.http.baseURL,
      recordStabilityInfo: this.#recordStabilityInfo,
    };
  }

  /** `JSON.stringify` of a client gives its handle. */
  toJSON(): SamplerHandle {
    return this.getSamplerHandle();
  }

  /** A client for the sampler behind a handle, with this process's own credentials. Close it when done. */
  static async fromSamplerHandle(
    handle: SamplerHandle,
    options: ServiceClientOptions = {},
  ): Promise<SamplingClient> {
    const http = new HttpClient({ ...options, baseURL: options.baseURL ?? handle.baseURL });
    const session = await Session.attach(http, handle.session);
    const context = createContext(session, options);
    const client = new SamplingClient(context, handle.samplingSessionId, handle);
    client.#ownsContext = true;
    if (session.config.sampleJoinSamplingSession) client.#nextNumber = undefined;
    else client.#becomeCopy(1 + Math.floor(http.random() * MAX_RANDOM_COPY));
    return client;
  }

  /** Ends a client made from a handle. Others end with their ServiceClient. */
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
    finish: (response: SampleResponse) => R,
  ): APIFuture<R> {
    // Written when its turn to be sent comes: thousands may wait, and as JSON a prompt takes several times its memory.
    const encode = (seqId: number) =>
      encodeRequest(endpoints.sample, {
        ...request,
        samplingSessionId: this.samplingSessionId,
        seqId,
        recordStabilityInfo: this.#recordStabilityInfo || undefined,
      });
    // The one part that may turn out not to fit into JSON: the caller hears of it before anything is sent.
    if (request.targetPromptLogprobs !== undefined) encode(0);
    // One number for all attempts: a request sent twice is then one request.
    let number = this.#takeNumber();
    const progress = this.#progress.begin(options.signal);
    return startOperation(this.#context, progress.signal, async (signal, onAccepted) => {
      let leave: (() => void) | undefined;
      let accepted: Accepted<SampleResponse> | undefined;
      try {
        if (number === undefined) {
          await this.#join(signal);
          number = this.#takeNumber()!;
        }
        leave = await this.#concurrency.acquire(signal);
        const seqId = number;
        const send = async () => {
          accepted = undefined;
          accepted = await this.#context.samplingLimits.send(
            request,
            { ...options, signal },
            () => encode(seqId),
            (encoded, delivery) => {
              const attempt = (settings: AttemptSettings) =>
                this.#context.http.exchange(attemptOf(encoded, settings));
              return handIn(this.#context, KIND.requestType, attempt, delivery);
            },
          );
          return accepted;
        };
        onAccepted(await send());
        const sample = { kind: KIND, queue: this.#queue, poller: this.#sessionPoller(), sendAgain: send };
        const response = await resultOf(this.#context, sample, accepted!, signal);
        this.#progress.noteProgress();
        return finish({
          ...withFirstToken(request, response),
          sequences: response.sequences.map((sequence, index) => ({
            ...sequence,
            sequenceId: accepted?.sampleSequenceIds?.[index] ?? sequence.sequenceId,
          })),
        });
      } catch (error) {
        const { dynamicConfig } = this.#context.session;
        if (signal.aborted && accepted !== undefined && dynamicConfig.sampleCancelEnabled)
          this.#context.cancelQueue.add(accepted.requestId);
        throw error;
      } finally {
        leave?.();
        progress.end();
      }
    });
  }

  #takeNumber(): number | undefined {
    return this.#nextNumber === undefined ? undefined : this.#nextNumber++;
  }

  #becomeCopy(copyId: number): void {
    this.#copyId = copyId;
    this.#nextNumber = copyId * NUMBERS_PER_COPY;
  }

  /** Asks the server, once, for the number of this copy of the sampler. */
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
