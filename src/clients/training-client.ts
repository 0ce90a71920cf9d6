import { TinkerError, ValidationError } from "../errors.js";
import { type APIFuture, futureKinds, submitWithRetries } from "../futures/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../tokenizers/index.js";
import type { CustomLossFn, CustomLossResult } from "../training/custom-loss.js";
import type { ApiRequest, RequestOptions } from "../transport/index.js";
import {
  type AdamParams,
  type CheckpointKind,
  checkLossFnConfig,
  checkLossFnInputs,
  checkOptimParams,
  checkTinkerPath,
  checkTtlSeconds,
  Datum,
  type DatumLike,
  type ForwardBackwardOutput,
  formatTinkerPath,
  fromWireJson,
  type LoadWeightsResponse,
  type LossFnConfig,
  type LossFnName,
  type ModelInfo,
  type OptimParams,
  type OptimStepResponse,
  toWireJson,
} from "../wire/index.js";
import { consoleUrls } from "./console-urls.js";
import { type ClientContext, queueLogger } from "./context.js";
import { startForwardBackward } from "./forward-backward.js";
import { startForwardBackwardCustom } from "./forward-backward-custom.js";
import { SamplingClient, type SamplingClientOptions } from "./sampling-client.js";
import { type Refusal, TrainingQueue } from "./training-queue.js";

export interface SaveOptions extends RequestOptions {
  /** Seconds until the checkpoint expires; absent = never. */
  ttlSeconds?: number | undefined;
  userMetadata?: Record<string, string> | undefined;
}

export interface SaveStateOptions extends SaveOptions {
  /** Replace an existing checkpoint of the same name, its metadata included. */
  overwrite?: boolean | undefined;
}

export interface LoadStateOptions extends RequestOptions {
  /** For a checkpoint of another account. */
  weightsAccessToken?: string | undefined;
}

/**
 * Trains one LoRA adapter. Every call is sent at once, in the order of the calls; await the returned futures
 * when the results are needed. Bad arguments throw before anything is sent and before the call takes its place
 * in the order.
 */
export class TrainingClient {
  readonly modelId: string;
  readonly #context: ClientContext;
  readonly #queue: TrainingQueue;

  /** Made by a ServiceClient. */
  constructor(context: ClientContext, modelId: string) {
    this.#context = context;
    this.modelId = modelId;
    this.#queue = new TrainingQueue(context, queueLogger(context, modelId));
  }

  /** Computes losses and logprobs without gradients. */
  forward<L extends LossFnName | (string & {})>(
    data: readonly DatumLike<NoInfer<L>>[],
    lossFn: L,
    lossFnConfig?: LossFnConfig<L> | null,
    options: RequestOptions = {},
  ): APIFuture<ForwardBackwardOutput<L>> {
    return this.#forwardBackward(data, lossFn, lossFnConfig, true, options);
  }

  /** Computes losses and adds their gradients to those gathered since the last `optimStep`. */
  forwardBackward<L extends LossFnName | (string & {})>(
    data: readonly DatumLike<NoInfer<L>>[],
    lossFn: L,
    lossFnConfig?: LossFnConfig<L> | null,
    options: RequestOptions = {},
  ): APIFuture<ForwardBackwardOutput<L>> {
    return this.#forwardBackward(data, lossFn, lossFnConfig, false, options);
  }

  /**
   * Computes a loss of your own over the logprobs of the target tokens and adds its gradients, as `forwardBackward`
   * does: a forward pass, your function, a backward pass with its gradients. Calls made behind it wait until then.
   */
  forwardBackwardCustom(
    data: readonly DatumLike[],
    lossFn: CustomLossFn,
    options: RequestOptions = {},
  ): APIFuture<CustomLossResult> {
    checkData(data);
    return startForwardBackwardCustom(this.#context, this.#queue, {
      modelId: this.modelId,
      data: Array.from(data, (like, index) => Datum.from(like, index)),
      lossFn,
      options,
    });
  }

  #forwardBackward<L extends string>(
    data: readonly DatumLike[],
    lossFn: L,
    lossFnConfig: Readonly<Record<string, unknown>> | null | undefined,
    forwardOnly: boolean,
    options: RequestOptions,
  ): APIFuture<ForwardBackwardOutput<L>> {
    checkData(data);
    const output = startForwardBackward(this.#context, this.#queue, {
      modelId: this.modelId,
      data: Array.from(data, (like, index) => {
        const datum = Datum.from(like, index);
        checkLossFnInputs(lossFn, datum.lossFnInputs, `data[${index}].lossFnInputs`);
        return datum;
      }),
      lossFn,
      lossFnConfig: checkLossFnConfig(lossFn, lossFnConfig ?? undefined),
      forwardOnly,
      options,
    });
    // What a known loss returns is the protocol's promise: a server with less is not refused.
    return output as APIFuture<ForwardBackwardOutput<L>>;
  }

  /** Applies the gathered gradients with the optimizer chosen at the model's creation (AdamW unless told otherwise). */
  optimStep(
    params: AdamParams | OptimParams = {},
    options: RequestOptions = {},
  ): APIFuture<OptimStepResponse> {
    const checked = checkOptimParams(params);
    const field = "type" in checked ? "optimizer_params" : "adam_params";
    return this.#queue.start({
      kind: futureKinds.optimStep,
      options,
      send: (seqId, settings) =>
        this.#post("/api/v1/optim_step", settings, {
          [field]: toWireJson(checked),
          model_id: this.modelId,
          seq_id: seqId,
          type: "optim_step",
        }),
    });
  }

  /** Saves weights and optimizer state under a name. */
  saveState(name: string, options: SaveStateOptions = {}): APIFuture<{ path: string }> {
    checkName(name);
    checkTtlSeconds(options.ttlSeconds);
    return this.#queue.start({
      kind: futureKinds.saveWeights,
      options,
      refusal: this.#nameTaken(name, "weights"),
      send: (seqId, settings) =>
        this.#post("/api/v1/save_weights", settings, {
          model_id: this.modelId,
          path: name,
          seq_id: seqId,
          ttl_seconds: options.ttlSeconds,
          overwrite: options.overwrite ?? false,
          user_metadata: options.userMetadata,
          type: "save_weights",
        }),
    });
  }

  /** Loads weights alone. Only a model's first request may do this; see `createTrainingClientFromState`. */
  loadState(path: string, options: LoadStateOptions = {}): APIFuture<LoadWeightsResponse> {
    return this.#load(path, false, options);
  }

  /** Loads weights and optimizer state, so that training goes on exactly where it was saved. */
  loadStateWithOptimizer(path: string, options: LoadStateOptions = {}): APIFuture<LoadWeightsResponse> {
    return this.#load(path, true, options);
  }

  #load(path: string, optimizer: boolean, options: LoadStateOptions): APIFuture<LoadWeightsResponse> {
    checkTinkerPath(path);
    return this.#queue.start({
      kind: futureKinds.loadWeights,
      options,
      send: (seqId, settings) =>
        this.#post("/api/v1/load_weights", settings, {
          model_id: this.modelId,
          seq_id: seqId,
          path,
          optimizer,
          weights_access_token: options.weightsAccessToken,
          type: "load_weights",
        }),
    });
  }

  /** Saves weights for sampling under a name that outlives this session. */
  saveWeightsForSampler(name: string, options: SaveOptions = {}): APIFuture<{ path: string }> {
    checkName(name);
    checkTtlSeconds(options.ttlSeconds);
    return this.#queue.start({
      kind: futureKinds.saveWeightsForSampler,
      options,
      refusal: this.#nameTaken(name, "sampler_weights"),
      finish: ({ path }) => {
        if (path === undefined) throw new TinkerError(`The server saved "${name}" but did not say where.`);
        return { path };
      },
      send: (seqId, settings) =>
        this.#post("/api/v1/save_weights_for_sampler", settings, {
          model_id: this.modelId,
          path: name,
          seq_id: seqId,
          ttl_seconds: options.ttlSeconds,
          user_metadata: options.userMetadata,
          type: "save_weights_for_sampler",
        }),
    });
  }

  /** Saves weights in a format other tools read, optionally encrypted to age recipients. */
  saveWeightsExternal(
    name: string,
    options: RequestOptions & {
      ttlSeconds?: number | undefined;
      ageEncryptionRecipients?: readonly string[] | undefined;
    } = {},
  ): APIFuture<{ path: string }> {
    checkName(name);
    checkTtlSeconds(options.ttlSeconds);
    return this.#queue.start({
      kind: futureKinds.saveWeightsExternal,
      options,
      finish: ({ path }) => ({ path }),
      send: (seqId, settings) =>
        this.#post("/api/v1/save_weights_external", settings, {
          model_id: this.modelId,
          path: name,
          seq_id: seqId,
          ttl_seconds: options.ttlSeconds,
          age_encryption_recipients: options.ageEncryptionRecipients,
          type: "save_weights_external",
        }),
    });
  }

  /** A sampler of the weights as they are after the calls made so far. Lives as long as the session. */
  async saveWeightsAndGetSamplingClient(
    options: SamplingClientOptions & RequestOptions = {},
  ): Promise<SamplingClient> {
    const samplingSessionSeqId = this.#context.session.nextSamplingSessionSeqId();
    const samplingSessionId = await this.#queue.start({
      kind: futureKinds.saveWeightsForSampler,
      options,
      finish: ({ samplingSessionId: id }) => {
        if (id === undefined)
          throw new TinkerError("The server saved the weights but opened no sampling session.");
        return id;
      },
      send: (seqId, settings) =>
        this.#post("/api/v1/save_weights_for_sampler", settings, {
          model_id: this.modelId,
          seq_id: seqId,
          sampling_session_seq_id: samplingSessionSeqId,
          type: "save_weights_for_sampler",
        }),
    });
    return new SamplingClient(this.#context, samplingSessionId, options);
  }

  /** A sampler of saved weights. */
  createSamplingClient(
    modelPath: string,
    options: SamplingClientOptions & RequestOptions = {},
  ): Promise<SamplingClient> {
    return SamplingClient.create(this.#context, { modelPath }, options);
  }

  /** What the server knows of this model. */
  async getInfo(options: RequestOptions = {}): Promise<ModelInfo> {
    const response = await submitWithRetries(
      this.#context,
      () =>
        this.#post(
          "/api/v1/get_info",
          { ...options, expect: "json" },
          { model_id: this.modelId, type: "get_info" },
        ),
      { signal: options.signal },
    );
    return fromWireJson<ModelInfo>(response.json());
  }

  /** The tokenizer of the model, loaded once for the process. */
  async getTokenizer(options: LoadTokenizerOptions & RequestOptions = {}): Promise<Tokenizer> {
    const { signal, timeout, maxRetries, headers, ...loading } = options;
    const info = await this.getInfo({ signal, timeout, maxRetries, headers });
    const { modelName, tokenizerId } = info.modelData;
    const { tokenizerForModel } = await import("../tokenizers/index.js");
    return await tokenizerForModel({ modelName: modelName ?? info.modelName ?? "", tokenizerId }, loading);
  }

  /** Frees the model on the server, after the calls made so far. It cannot be used afterwards. */
  unloadModel(options: RequestOptions = {}): APIFuture<void> {
    return this.#queue.startUnnumbered({
      kind: futureKinds.unloadModel,
      options,
      refusal: ALREADY_UNLOADED,
      finish: () => undefined,
      send: (settings) =>
        this.#post("/api/v1/unload_model", settings, { model_id: this.modelId, type: "unload_model" }),
    });
  }

  /** This run's page in the Tinker console. */
  getConsoleUrl(): string {
    return consoleUrls.trainingRun(this.modelId);
  }

  #post(
    path: string,
    settings: Pick<ApiRequest, "signal" | "maxRetries" | "timeout" | "headers" | "expect">,
    json: object,
  ) {
    return this.#context.http.exchange({ ...settings, method: "POST", path, json, pool: "train" });
  }

  /** An attempt whose answer was lost may have saved already; then the name is taken by ourselves. */
  #nameTaken(name: string, kind: CheckpointKind): Refusal<{ path: string }> {
    return {
      statuses: [409],
      answer: (error, mayHaveArrived) => {
        if (mayHaveArrived) return { path: formatTinkerPath(this.modelId, kind, name) };
        throw error;
      },
    };
  }
}

/** An attempt whose answer was lost may have unloaded the model already. */
const ALREADY_UNLOADED: Refusal<Record<string, unknown>> = {
  statuses: [404, 410],
  answer: (error, mayHaveArrived) => {
    if (mayHaveArrived) return {};
    throw error;
  },
};

function checkData(data: unknown): void {
  if (!Array.isArray(data) || data.length === 0) {
    throw new ValidationError("data", "data must be a list of at least one datum");
  }
}

function checkName(name: unknown): void {
  if (typeof name !== "string" || name.trim() === "") {
    throw new ValidationError("name", `name must be a non-empty string, got ${JSON.stringify(name)}`);
  }
}
