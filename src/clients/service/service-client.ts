import { TinkerError, ValidationError } from "../../errors.js";
import {
  type AttemptSettings,
  attemptOf,
  handIn,
  type QueueStateObserver,
  resultOf,
  startOperation,
  valueOrThrow,
} from "../../futures/index.js";
import { Metrics, Session, type SessionOptions, type Telemetry } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import {
  type APIPromise,
  type EndpointOptions,
  HttpClient,
  type HttpClientOptions,
  type RequestOptions,
  untilAborted,
} from "../../transport/index.js";
import { checkKeys, checkObject } from "../../wire/fields/check-keys.js";
import {
  checkSpelling,
  checkTinkerPath,
  encodeRequest,
  endpoints,
  type GivenMessage,
  type LoraConfig,
  loraConfig,
  type OperationEndpoint,
  type OptimizerConfig,
  optimizerConfig,
  type ServerCapabilities,
  type SessionFinishStatus,
  type Shape,
} from "../../wire/index.js";
import { consoleUrls } from "../console-urls.js";
import {
  CLIENT_OPTIONS,
  type ClientContext,
  createContext,
  queueLogger,
  REQUEST_OPTIONS,
} from "../context.js";
import { RestClient } from "../rest/rest-client.js";
import {
  type SamplerSource,
  SamplingClient,
  type SamplingClientOptions,
} from "../sampling/sampling-client.js";
import { TrainingClient } from "../training/training-client.js";

/** Settings of a `ServiceClient` and of every client made from it. */
export interface ServiceClientOptions extends HttpClientOptions, SessionOptions {
  /** Told whenever the server reports why a request waits. Pauses are also logged, at most once a minute. */
  onQueueState?: QueueStateObserver | undefined;
  /** Wait a little between polls when a server answers them at once instead of holding them; on by default. */
  pollBackoff?: boolean | undefined;
}

/** A new adapter: its base model, its shape, its optimizer. */
export interface LoraTrainingOptions extends Partial<LoraConfig>, RequestOptions {
  baseModel: string;
  userMetadata?: Record<string, string> | undefined;
  /** The optimizer for the model's whole life; AdamW when absent. */
  optimizer?: OptimizerConfig | undefined;
}

const LORA_TRAINING_KEYS: ReadonlySet<string> = new Set([
  "baseModel",
  "rank",
  "seed",
  "trainAttn",
  "trainMlp",
  "trainUnembed",
  "userMetadata",
  "optimizer",
  ...REQUEST_OPTIONS,
] satisfies (keyof LoraTrainingOptions)[]);

const SAMPLING_KEYS: ReadonlySet<string> = new Set([
  "baseModel",
  "modelPath",
  "recordStabilityInfo",
  ...REQUEST_OPTIONS,
] satisfies (keyof SamplerSource | keyof SamplingClientOptions | keyof RequestOptions)[]);

/** How to go on from saved weights. */
export interface FromStateOptions extends RequestOptions {
  /** Another base model that fits the checkpoint, for example with a longer context. */
  baseModel?: string | undefined;
  userMetadata?: Record<string, string> | undefined;
  /** For a checkpoint of another account. */
  weightsAccessToken?: string | undefined;
}

const DEFAULT_RANK = 32;

/**
 * The way in: makes training, sampling and REST clients. The session with the server is opened by the first
 * call that needs one; `close()`, or `await using`, ends it.
 */
export class ServiceClient {
  /** Counters and latencies of every request of this client. */
  readonly metrics: Metrics = new Metrics();
  readonly #options: ServiceClientOptions;
  #context: Promise<ClientContext> | undefined;
  #rest: RestClient | undefined;
  readonly #sessionLostCallbacks = new Set<() => void>();
  /** The connection of a session that is being opened: closing it ends the attempt. */
  #opening: HttpClient | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: ServiceClientOptions = {}) {
    checkSpelling(options, CLIENT_OPTIONS);
    this.#options = options;
  }

  /** The models a server offers. Needs no session. */
  async getServerCapabilities(options: RequestOptions = {}): Promise<ServerCapabilities> {
    return this.createRestClient().getServerCapabilities(options);
  }

  /** The tokenizer of a base model, before anything is trained or sampled. Needs no session. */
  async getTokenizer(
    baseModel: string,
    options: LoadTokenizerOptions & Pick<RequestOptions, "signal"> = {},
  ): Promise<Tokenizer> {
    return this.createRestClient().getTokenizer(baseModel, options);
  }

  /** A training client for a new LoRA adapter on a base model. Waits until the server has made the model. */
  async createLoraTrainingClient(options: LoraTrainingOptions): Promise<TrainingClient> {
    checkObject(options, "the argument of createLoraTrainingClient");
    checkKeys(options, LORA_TRAINING_KEYS, "");
    const { baseModel, userMetadata, optimizer, signal, timeout, maxRetries, headers, ...lora } = options;
    if (typeof baseModel !== "string" || baseModel === "") {
      throw new ValidationError(
        "baseModel",
        `baseModel must be the name of a model, got ${JSON.stringify(baseModel)}`,
      );
    }
    const adapter = loraConfig.check({ rank: DEFAULT_RANK, ...lora }, "");
    const context = await this.#session(signal);
    const modelSeqId = context.session.nextModelSeqId();
    const { modelId } = await this.#create(
      context,
      endpoints.createModel,
      {
        sessionId: context.session.id ?? "",
        modelSeqId,
        baseModel,
        userMetadata,
        loraConfig: adapter,
        optimizerConfig: optimizer && optimizerConfig.check(optimizer, "optimizer"),
      },
      baseModel,
      { signal, timeout, maxRetries, headers },
    );
    if (typeof modelId !== "string") throw new TinkerError("The server created a model without an id.");
    return new TrainingClient(context, modelId);
  }

  /** A training client that starts from saved weights, with a fresh optimizer. */
  createTrainingClientFromState(
    path: string,
    options: FromStateOptions & { optimizer?: OptimizerConfig | undefined } = {},
  ): Promise<TrainingClient> {
    return this.#fromState(path, false, options);
  }

  /** A training client that goes on exactly where `saveState` was called, optimizer included. */
  createTrainingClientFromStateWithOptimizer(
    path: string,
    options: FromStateOptions = {},
  ): Promise<TrainingClient> {
    return this.#fromState(path, true, options);
  }

  async #fromState(
    path: string,
    withOptimizer: boolean,
    options: FromStateOptions & { optimizer?: OptimizerConfig | undefined },
  ): Promise<TrainingClient> {
    checkTinkerPath(path);
    const { baseModel, userMetadata, weightsAccessToken, optimizer, ...requestOptions } = options;
    const context = await this.#session(requestOptions.signal);
    if (context.session.config.createModelViaLoadWeights) {
      const sessionId = context.session.id ?? "";
      const modelSeqId = context.session.nextModelSeqId();
      const modelId = `${sessionId}:train:${modelSeqId}`;
      const loaded = await this.#create(
        context,
        endpoints.loadWeights,
        {
          sessionId,
          modelSeqId,
          baseModel,
          userMetadata,
          path,
          optimizer: withOptimizer,
          optimizerConfig: optimizer && optimizerConfig.check(optimizer, "optimizer"),
          weightsAccessToken,
        },
        modelId,
        requestOptions,
      );
      return new TrainingClient(context, loaded.modelId ?? modelId);
    }
    const info = await this.#weightsInfo(path, weightsAccessToken, requestOptions);
    if (!info.isLora || !info.loraRank) {
      throw new TinkerError(`${path} is not a LoRA checkpoint, so no training client can start from it.`);
    }
    const restored = withOptimizer ? info.optimizerConfig : optimizer;
    const training = await this.createLoraTrainingClient({
      ...requestOptions,
      baseModel: baseModel ?? info.baseModel,
      rank: info.loraRank,
      trainUnembed: info.trainUnembed ?? true,
      trainMlp: info.trainMlp ?? true,
      trainAttn: info.trainAttn ?? true,
      userMetadata,
      optimizer: restored ?? undefined,
    });
    const loadOptions = { ...requestOptions, weightsAccessToken };
    await (withOptimizer
      ? training.loadStateWithOptimizer(path, loadOptions)
      : training.loadState(path, loadOptions));
    return training;
  }

  async #weightsInfo(path: string, weightsAccessToken: string | undefined, options: RequestOptions) {
    if (weightsAccessToken === undefined) return this.createRestClient().getWeightsInfo(path, options);
    await using owner = new RestClient({ ...this.#options, apiKey: weightsAccessToken });
    return await owner.getWeightsInfo(path, options);
  }

  /** A sampler of a base model or of saved weights. */
  async createSamplingClient(
    source: SamplerSource & SamplingClientOptions & RequestOptions,
  ): Promise<SamplingClient> {
    const fields: unknown = source;
    checkObject(fields, "the argument of createSamplingClient");
    checkKeys(fields, SAMPLING_KEYS, "");
    const { baseModel, modelPath, ...options } = source;
    const sampler = { baseModel, modelPath } as SamplerSource;
    return SamplingClient.create(await this.#session(options.signal), sampler, options);
  }

  /** Runs, checkpoints, sessions, usage. Shares this client's settings; needs no session. */
  createRestClient(): RestClient {
    this.#throwIfClosed();
    this.#rest ??= new RestClient(this.#options, this.metrics);
    return this.#rest;
  }

  /** Copies weights into this client's project; see `RestClient.copyWeights`. */
  async copyWeights(
    path: string,
    options: RequestOptions & {
      ttlSeconds?: number | undefined;
      weightsAccessToken?: string | undefined;
    } = {},
  ): Promise<string> {
    return this.createRestClient().copyWeights(path, {
      destinationProjectId: this.#options.projectId,
      ...options,
    });
  }

  /** Calls any endpoint, also one this SDK does not know: `await service.get("/api/v1/...")`. */
  get<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.createRestClient().get(path, options);
  }

  post<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.createRestClient().post(path, options);
  }

  put<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.createRestClient().put(path, options);
  }

  delete<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.createRestClient().delete(path, options);
  }

  /** The session's id; opens the session if need be. */
  async getSessionId(): Promise<string> {
    return (await this.#session()).session.id ?? "";
  }

  /** A client with the same settings and a session of its own, for when this one's is lost. */
  clone(): ServiceClient {
    return new ServiceClient(this.#options);
  }

  /** Calls back once if the server ends the session before we do; the returned function unsubscribes. */
  onSessionLost(callback: () => void): () => void {
    this.#sessionLostCallbacks.add(callback);
    return () => {
      this.#sessionLostCallbacks.delete(callback);
    };
  }

  /** What this client reports to the server: `telemetry.captureExceptions(fn)` reports what `fn` throws. */
  async getTelemetry(): Promise<Telemetry> {
    return (await this.#session()).telemetry;
  }

  /** This session's page in the Tinker console. */
  async getConsoleUrl(): Promise<string> {
    return this.#context === undefined
      ? consoleUrls.sessions()
      : consoleUrls.session(await this.getSessionId());
  }

  /** Ends the session, and with it every client made from it. Requests still in flight are given up. */
  close(status: SessionFinishStatus = "success", detail?: string): Promise<void> {
    this.#closing ??= this.#close(status, detail);
    return this.#closing;
  }

  async #close(status: SessionFinishStatus, detail: string | undefined): Promise<void> {
    await this.#opening?.close();
    const context = await this.#context?.catch(() => undefined);
    context?.close();
    await Promise.all([context?.session.close(status, detail), this.#rest?.close()]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #throwIfClosed(): void {
    if (this.#closing !== undefined) throw new TinkerError("This ServiceClient is closed; make a new one.");
  }

  /** The signal ends only the wait for the session: others may be waiting for the same one. */
  #session(signal?: AbortSignal): Promise<ClientContext> {
    this.#throwIfClosed();
    this.#context ??= this.#open().catch((error) => {
      this.#context = undefined;
      throw error;
    });
    return untilAborted(this.#context, signal);
  }

  async #open(): Promise<ClientContext> {
    const http = new HttpClient(this.#options);
    this.#opening = http;
    try {
      const session = await Session.open(http, this.#options, this.metrics);
      session.onLost(() => {
        for (const callback of this.#sessionLostCallbacks) callback();
      });
      return createContext(session, this.#options);
    } catch (error) {
      await http.close();
      throw error;
    } finally {
      this.#opening = undefined;
    }
  }

  /** A long operation outside of any model's order. */
  async #create<S extends Shape, T>(
    context: ClientContext,
    endpoint: OperationEndpoint<S, T>,
    given: GivenMessage<S>,
    target: string,
    options: RequestOptions,
  ): Promise<T> {
    const kind = endpoint.future;
    const request = encodeRequest(endpoint, given);
    const send = (settings: AttemptSettings) => context.http.exchange(attemptOf(request, settings));
    return startOperation(context, options.signal, async (signal) => {
      const deliver = async () =>
        valueOrThrow(await handIn(context, kind.requestType, send, { ...options, signal }));
      const operation = { kind, queue: queueLogger(context, target), sendAgain: deliver };
      return resultOf(context, operation, await deliver(), signal);
    });
  }
}
