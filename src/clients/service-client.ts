import { TinkerError, ValidationError } from "../errors.js";
import {
  type APIFuture,
  futureKinds,
  type QueueStateObserver,
  readAcceptance,
  startOperation,
  submitWithRetries,
} from "../futures/index.js";
import {
  Metrics,
  Session,
  type SessionFinishStatus,
  type SessionOptions,
  type Telemetry,
} from "../session/index.js";
import {
  type APIPromise,
  type EndpointOptions,
  HttpClient,
  type HttpClientOptions,
  type RequestOptions,
  untilAborted,
} from "../transport/index.js";
import { checkKeys, checkObject } from "../wire/check-keys.js";
import {
  checkLoraConfig,
  checkOptimizerConfig,
  checkTinkerPath,
  type LoraConfig,
  type OptimizerConfig,
  type ServerCapabilities,
  toWireJson,
} from "../wire/index.js";
import { consoleUrls } from "./console-urls.js";
import { type ClientContext, createContext, queueLogger } from "./context.js";
import { RestClient } from "./rest/rest-client.js";
import { SamplingClient, type SamplingClientOptions } from "./sampling-client.js";
import { TrainingClient } from "./training-client.js";

export interface ServiceClientOptions extends HttpClientOptions, SessionOptions {
  /** Told whenever the server reports why a request waits. Pauses are also logged, at most once a minute. */
  onQueueState?: QueueStateObserver | undefined;
  /** Wait a little between polls when a server answers them at once instead of holding them; on by default. */
  pollBackoff?: boolean | undefined;
}

export interface LoraTrainingOptions extends Partial<LoraConfig>, RequestOptions {
  baseModel: string;
  userMetadata?: Record<string, string> | undefined;
  /** The optimizer for the model's whole life; AdamW when absent. */
  optimizer?: OptimizerConfig | undefined;
}

const REQUEST_OPTIONS = [
  "signal",
  "timeout",
  "maxRetries",
  "headers",
] as const satisfies (keyof RequestOptions)[];

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

interface SamplingSource extends SamplingClientOptions, RequestOptions {
  baseModel?: string | undefined;
  modelPath?: string | undefined;
}

const SAMPLING_KEYS: ReadonlySet<string> = new Set([
  "baseModel",
  "modelPath",
  "recordStabilityInfo",
  ...REQUEST_OPTIONS,
] satisfies (keyof SamplingSource)[]);

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
    this.#options = options;
  }

  /** The models a server offers. Needs no session. */
  async getServerCapabilities(options: RequestOptions = {}): Promise<ServerCapabilities> {
    return this.createRestClient().getServerCapabilities(options);
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
    const loraConfig = checkLoraConfig({
      rank: DEFAULT_RANK,
      trainUnembed: true,
      trainMlp: true,
      trainAttn: true,
      ...lora,
    });
    const context = await this.#session(signal);
    const modelSeqId = context.session.nextModelSeqId();
    const { modelId } = await this.#create(
      context,
      futureKinds.createModel,
      baseModel,
      { signal, timeout, maxRetries, headers },
      {
        path: "/api/v1/create_model",
        json: {
          session_id: context.session.id,
          model_seq_id: modelSeqId,
          base_model: baseModel,
          user_metadata: userMetadata,
          lora_config: toWireJson(loraConfig),
          optimizer_config:
            optimizer === undefined ? undefined : toWireJson(checkOptimizerConfig(optimizer, "optimizer")),
          type: "create_model",
        },
      },
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
      const sessionId = context.session.id;
      const modelSeqId = context.session.nextModelSeqId();
      const modelId = `${sessionId}:train:${modelSeqId}`;
      const loaded = await this.#create(context, futureKinds.loadWeights, modelId, requestOptions, {
        path: "/api/v1/load_weights",
        json: {
          session_id: sessionId,
          model_seq_id: modelSeqId,
          base_model: baseModel,
          user_metadata: userMetadata,
          path,
          optimizer: withOptimizer,
          optimizer_config:
            optimizer === undefined ? undefined : toWireJson(checkOptimizerConfig(optimizer, "optimizer")),
          weights_access_token: weightsAccessToken,
          type: "load_weights",
        },
      });
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
  async createSamplingClient(source: SamplingSource): Promise<SamplingClient> {
    const fields: unknown = source;
    checkObject(fields, "the argument of createSamplingClient");
    checkKeys(fields, SAMPLING_KEYS, "");
    const { baseModel, modelPath, ...options } = source;
    return SamplingClient.create(await this.#session(options.signal), { baseModel, modelPath }, options);
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

  #create<T>(
    context: ClientContext,
    kind: Parameters<typeof startOperation<T>>[1]["kind"],
    target: string,
    options: RequestOptions,
    request: { path: string; json: object },
  ): APIFuture<T> {
    return startOperation<T>(context, {
      kind,
      queue: queueLogger(context, target),
      signal: options.signal,
      submit: async (signal) =>
        submitWithRetries(
          context,
          async () =>
            readAcceptance(
              await context.http.exchange({ ...options, ...request, method: "POST", pool: "train", signal }),
              kind.requestType,
            ),
          { signal },
        ) as Promise<{ requestId: string }>,
      finish: (result) => result,
    });
  }
}
