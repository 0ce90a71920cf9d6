import { TinkerError } from "../../errors.js";
import { perform, startOperation } from "../../futures/index.js";
import { ClientMetrics, Session, type Telemetry } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import type { CustomLossHandle } from "../../training/custom-loss-handle.js";
import type { PerDatumLossFn } from "../../training/tracing/trace-loss.js";
import {
  type APIPromise,
  type EndpointOptions,
  HttpClient,
  REQUEST_FIELDS,
  type RequestOptions,
  serverAddress,
  untilAborted,
} from "../../transport/index.js";
import {
  anyText,
  checkTinkerPath,
  endpoints,
  type Field,
  type FieldsOf,
  type GivenMessage,
  type LoraConfig,
  loraConfig,
  metadata,
  type OperationEndpoint,
  type OptimizerConfig,
  type OptionTable,
  optimizerConfig,
  optional,
  optionTable,
  type ServerCapabilities,
  type SessionFinishStatus,
  type Shape,
  value,
  withDefault,
} from "../../wire/index.js";
import { consoleUrls } from "../console-urls.js";
import {
  CLIENT_OPTIONS,
  type ClientContext,
  createContext,
  queueLogger,
  type ServiceClientOptions,
} from "../context.js";
import { type CreateCustomLossOptions, createCustomLoss } from "../custom-losses.js";
import { type TokenObserver, TokenObservers } from "../observers.js";
import { RestClient } from "../rest/rest-client.js";
import {
  SAMPLING_CLIENT_FIELDS,
  type SamplerSource,
  SamplingClient,
  type SamplingClientOptions,
} from "../sampling/sampling-client.js";
import { TrainingClient } from "../training/training-client.js";

/** Runs of a backend whose weights are in their run folders. */
export interface RunData {
  /** Makes the runs in a folder known to the backend. */
  open(folder: string): Promise<void>;
  /** Keeps a new run in a folder; undefined if the backend's own data lasts. */
  readonly keep?: ((runId: string, folder: string) => Promise<void>) | undefined;
  /** Makes a checkpoint of an adapter in a folder. */
  importAdapter(folder: string, options: { baseModel: string }): Promise<{ statePath: string }>;
}

/** A server in this process, as `startLocalBackend` returns it; a copy of it has no `close` and is shared. */
export interface HandedBackend {
  close?(): Promise<void>;
  /** @internal */
  readonly runData?: RunData | undefined;
}

/** Parts of a client that its clones share. */
type InheritedParts = Pick<HandedBackend, "runData"> & {
  readonly parentObservers?: TokenObservers | undefined;
};

/** A new adapter: its base model, its shape, its optimizer. */
export interface LoraTrainingOptions extends Partial<LoraConfig>, RequestOptions {
  baseModel: string;
  userMetadata?: Record<string, string> | undefined;
  /** The optimizer of the model, which cannot change later. Default: AdamW. */
  optimizer?: OptimizerConfig | undefined;
}

/** Options for starting from saved weights. */
export interface FromStateOptions extends RequestOptions {
  /** Another base model that fits the checkpoint, such as one with a longer context. */
  baseModel?: string | undefined;
  userMetadata?: Record<string, string> | undefined;
  /** Access token for a checkpoint of another account. */
  weightsAccessToken?: string | undefined;
}

const LORA_TRAINING_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  ...loraConfig.shape,
  rank: withDefault(loraConfig.shape.rank, 32),
  baseModel: value<string>("the name of a model", (given) => typeof given === "string" && given !== ""),
  userMetadata: optional(metadata as Field<Record<string, string>>),
  optimizer: optional(optimizerConfig),
} satisfies FieldsOf<LoraTrainingOptions>);

const FROM_STATE_FIELDS = {
  ...REQUEST_FIELDS,
  baseModel: optional(anyText),
  userMetadata: optional(metadata as Field<Record<string, string>>),
  weightsAccessToken: optional(anyText),
} satisfies FieldsOf<FromStateOptions>;

const FROM_STATE_OPTIONS = optionTable({ ...FROM_STATE_FIELDS, optimizer: optional(optimizerConfig) });
const FROM_STATE_WITH_OPTIMIZER_OPTIONS = optionTable(FROM_STATE_FIELDS);

const SAMPLER_OPTIONS = optionTable({
  ...SAMPLING_CLIENT_FIELDS,
  baseModel: optional(anyText),
  modelPath: optional(anyText),
} satisfies FieldsOf<SamplingClientOptions & RequestOptions & { [K in keyof SamplerSource]?: string }>);

/** Number of open clients per backend: the last one closes it. */
const openClients = new WeakMap<HandedBackend, number>();

/**
 * The entry point: makes training, sampling and REST clients. The first call that needs a session opens it; `close()`
 * or `await using` ends it.
 */
export class ServiceClient {
  /** Counters and latencies of every request of this client. */
  readonly metrics: ClientMetrics = new ClientMetrics();
  /** @internal */
  readonly runData: RunData | undefined;
  readonly #options: ServiceClientOptions & InheritedParts;
  readonly #tokenObservers: TokenObservers;
  readonly #backend: HandedBackend;
  #context: Promise<ClientContext> | undefined;
  #rest: RestClient | undefined;
  readonly #sessionLostCallbacks = new Set<() => void>();
  /** The connection of a session that is being opened: closing it ends the attempt. */
  #opening: HttpClient | undefined;
  #closing: Promise<void> | undefined;

  /** The last client of a backend closes it together with itself; with `{ ...backend }` it stays open. */
  constructor(options: ServiceClientOptions & HandedBackend = {}) {
    const { runData, parentObservers }: InheritedParts = options;
    this.#options = { ...CLIENT_OPTIONS.check(options, "ServiceClient"), runData };
    this.#tokenObservers = new TokenObservers(parentObservers);
    this.#backend = options;
    openClients.set(options, (openClients.get(options) ?? 0) + 1);
    this.runData = runData;
  }

  /** Address of the server. */
  get baseURL(): string {
    return serverAddress(this.#options);
  }

  /** @internal Sees every request of this client and of its clones that costs tokens, until the returned function is called. */
  observeTokens(observer: TokenObserver): () => void {
    return this.#tokenObservers.add(observer);
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
    const { baseModel, userMetadata, optimizer, signal, timeout, maxRetries, headers, ...lora } =
      LORA_TRAINING_OPTIONS.check(options, "createLoraTrainingClient");
    const adapter = loraConfig.check(lora, "");
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
        optimizerConfig: optimizer,
      },
      baseModel,
      { signal, timeout, maxRetries, headers },
    );
    if (typeof modelId !== "string") throw new TinkerError("The server created a model without an id.");
    return new TrainingClient(context, modelId, baseModel);
  }

  /** A training client that starts from saved weights, with a fresh optimizer. */
  createTrainingClientFromState(
    path: string,
    options: FromStateOptions & { optimizer?: OptimizerConfig | undefined } = {},
  ): Promise<TrainingClient> {
    return this.#fromState(path, false, options, FROM_STATE_OPTIONS);
  }

  /** A training client that continues exactly where `saveState` was called, optimizer included. */
  createTrainingClientFromStateWithOptimizer(
    path: string,
    options: FromStateOptions = {},
  ): Promise<TrainingClient> {
    return this.#fromState(path, true, options, FROM_STATE_WITH_OPTIMIZER_OPTIONS);
  }

  async #fromState(
    path: string,
    withOptimizer: boolean,
    given: FromStateOptions,
    table: OptionTable<typeof FROM_STATE_FIELDS>,
  ): Promise<TrainingClient> {
    checkTinkerPath(path);
    const options: FromStateOptions & { optimizer?: OptimizerConfig | undefined } = table.check(
      given,
      `createTrainingClientFromState${withOptimizer ? "WithOptimizer" : ""}`,
    );
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
          optimizerConfig: optimizer,
          weightsAccessToken,
        },
        modelId,
        requestOptions,
      );
      return new TrainingClient(context, loaded.modelId ?? modelId, baseModel);
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

  /**
   * Traces a loss of one datum that is written with `tinkerts/autograd`, for `forwardBackwardCustom`. It is uploaded once per
   * session and runs on the server in one pass, where the server does that, and otherwise in this client.
   */
  async createCustomLoss<Name extends string = never>(
    lossFn: PerDatumLossFn<Name>,
    options: CreateCustomLossOptions<Name> = {},
  ): Promise<CustomLossHandle> {
    const context = await this.#session(options.signal);
    return createCustomLoss(context, lossFn as PerDatumLossFn, options);
  }

  /** A sampler of a base model or of saved weights. */
  async createSamplingClient(
    source: SamplerSource & SamplingClientOptions & RequestOptions,
  ): Promise<SamplingClient> {
    const { baseModel, modelPath, ...options } = SAMPLER_OPTIONS.check(source, "createSamplingClient");
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

  /** The session's id; opens the session if necessary. */
  async getSessionId(): Promise<string> {
    return (await this.#session()).session.id ?? "";
  }

  /**
   * A new client with the same settings and its own session, for use when this session is lost. It closes no backend.
   */
  clone(): ServiceClient {
    const inherited: InheritedParts = { ...this.#options, parentObservers: this.#tokenObservers };
    return new ServiceClient(inherited);
  }

  /** Calls back once if the server ends the session; the returned function unsubscribes. */
  onSessionLost(callback: () => void): () => void {
    this.#sessionLostCallbacks.add(callback);
    return () => {
      this.#sessionLostCallbacks.delete(callback);
    };
  }

  /** Telemetry that this client reports to the server: `telemetry.captureExceptions(fn)` reports what `fn` throws. */
  async getTelemetry(): Promise<Telemetry> {
    return (await this.#session()).telemetry;
  }

  /** This session's page in the Tinker console. */
  async getConsoleUrl(): Promise<string> {
    return this.#context === undefined
      ? consoleUrls.sessions()
      : consoleUrls.session(await this.getSessionId());
  }

  /**
   * Ends the session, every client made from it, and the backend if this is its last client. Requests in flight are
   * aborted.
   */
  close(status: SessionFinishStatus = "success", detail?: string): Promise<void> {
    this.#closing ??= this.#close(status, detail);
    return this.#closing;
  }

  async #close(status: SessionFinishStatus, detail: string | undefined): Promise<void> {
    await this.#opening?.close();
    const context = await this.#context?.catch(() => undefined);
    context?.close();
    await Promise.all([context?.session.close(status, detail), this.#rest?.close()]);
    const others = (openClients.get(this.#backend) ?? 1) - 1;
    openClients.set(this.#backend, others);
    if (others === 0) await this.#backend.close?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #throwIfClosed(): void {
    if (this.#closing !== undefined) throw new TinkerError("This ServiceClient is closed; make a new one.");
  }

  /** The signal ends only the wait for the session: other calls may wait for the same one. */
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
      return createContext(session, this.#options, this.#tokenObservers);
    } catch (error) {
      await http.close();
      throw error;
    } finally {
      this.#opening = undefined;
    }
  }

  /** Starts a long operation that has no place in a model's order. */
  async #create<S extends Shape, T>(
    context: ClientContext,
    endpoint: OperationEndpoint<S, T>,
    given: GivenMessage<S>,
    target: string,
    options: RequestOptions,
  ): Promise<T> {
    return startOperation(context, options.signal, (signal) =>
      perform(
        context,
        { endpoint, message: given },
        { ...options, signal, queue: queueLogger(context, target) },
      ),
    );
  }
}
