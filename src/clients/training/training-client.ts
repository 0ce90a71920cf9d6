import { TinkerError, ValidationError } from "../../errors.js";
import {
  type APIFuture,
  type AttemptSettings,
  attemptOf,
  deliverPlain,
  startOperation,
} from "../../futures/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import type { CustomLossFn, CustomLossResult } from "../../training/custom-loss.js";
import type { RequestOptions } from "../../transport/index.js";
import { checkKeys, checkObject } from "../../wire/fields/check-keys.js";
import {
  type AdamParams,
  checkLossFnConfig,
  checkLossFnInputs,
  checkLossFnName,
  checkTinkerPath,
  Datum,
  type DatumLike,
  type DimuonParams,
  describeLoss,
  encodeRequest,
  endpoints,
  type ForwardBackwardOutput,
  formatTinkerPath,
  type GivenMessage,
  type LoadWeightsResponse,
  type LossFnConfig,
  type LossFnName,
  type ModelInfo,
  type OperationEndpoint,
  type OptimParams,
  type OptimStepResponse,
  type OtherOptimParams,
  optimParams,
  type Shape,
} from "../../wire/index.js";
import { consoleUrls } from "../console-urls.js";
import { type ClientContext, REQUEST_OPTIONS } from "../context.js";
import { SamplingClient, type SamplingClientOptions } from "../sampling/sampling-client.js";
import { startForwardBackward, startForwardBackwardCustom } from "./forward-backward.js";
import { GradientPasses } from "./gradient-passes.js";
import { type ModelRequest, ModelRequests } from "./model-requests.js";

/** A loss that the server has and these types do not know. */
export interface UnlistedLoss {
  readonly name: string;
}

type LossNameOf<L> = L extends LossFnName ? L : string;

/** Options of `forward` and `forwardBackward`. */
export interface PassOptions<L extends string = string> extends RequestOptions {
  /** The settings of the loss. */
  config?: LossFnConfig<L> | undefined;
}

const PASS_KEYS: ReadonlySet<string> = new Set([
  "config",
  ...REQUEST_OPTIONS,
] satisfies (keyof PassOptions)[]);

/** How long a checkpoint is kept, and what is noted with it. */
export interface SaveOptions extends RequestOptions {
  /** Seconds until the checkpoint expires; absent = never. */
  ttlSeconds?: number | undefined;
  userMetadata?: Record<string, string> | undefined;
}

/** Options of `saveState`. */
export interface SaveStateOptions extends SaveOptions {
  /** Replace an existing checkpoint of the same name, its metadata included. */
  overwrite?: boolean | undefined;
}

/** Options of `loadState` and `loadStateWithOptimizer`. */
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
  readonly #requests: ModelRequests;
  readonly #gradients: GradientPasses;

  /** Made by a ServiceClient. */
  constructor(context: ClientContext, modelId: string) {
    this.#context = context;
    this.modelId = modelId;
    this.#requests = new ModelRequests(context, modelId);
    this.#gradients = new GradientPasses(context);
  }

  /** Computes losses and logprobs without gradients. */
  forward<L extends LossFnName | UnlistedLoss>(
    data: readonly DatumLike<LossNameOf<NoInfer<L>>>[],
    lossFn: L,
    options: PassOptions<LossNameOf<NoInfer<L>>> = {},
  ): APIFuture<ForwardBackwardOutput<LossNameOf<L>>> {
    return this.#pass(data, lossFn, options, true);
  }

  /** Computes losses and adds their gradients to those gathered since the last `optimStep`. */
  forwardBackward<L extends LossFnName | UnlistedLoss>(
    data: readonly DatumLike<LossNameOf<NoInfer<L>>>[],
    lossFn: L,
    options: PassOptions<LossNameOf<NoInfer<L>>> = {},
  ): APIFuture<ForwardBackwardOutput<LossNameOf<L>>> {
    const future = this.#pass(data, lossFn, options, false);
    const name = typeof lossFn === "string" ? lossFn : lossFn.name;
    return this.#gradients.add(`forwardBackward of ${countOf(data)} with ${name}`, future);
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
    const { modelId } = this;
    const call = { modelId, data: Array.from(data, (like, index) => Datum.from(like, index)), lossFn };
    const future = startForwardBackwardCustom(this.#context, this.#requests, call, options);
    return this.#gradients.add(`forwardBackwardCustom of ${countOf(data)}`, future);
  }

  #pass<L extends string>(
    data: readonly DatumLike[],
    loss: string | UnlistedLoss,
    options: PassOptions,
    forwardOnly: boolean,
  ): APIFuture<ForwardBackwardOutput<L>> {
    checkData(data);
    const lossFn: unknown = typeof loss === "object" && loss !== null ? loss.name : loss;
    // One that is named in an object is meant to be unknown here.
    if (lossFn === loss) checkLossFnName(lossFn);
    else checkName(lossFn, "lossFn.name");
    checkPassOptions(options, lossFn);
    const { config, ...requestOptions } = options;
    const pass = {
      modelId: this.modelId,
      data: Array.from(data, (like, index) => {
        const datum = Datum.from(like, index);
        checkLossFnInputs(lossFn, datum.lossFnInputs, `data[${index}].lossFnInputs`);
        return datum;
      }),
      lossFn,
      lossFnConfig: checkLossFnConfig(lossFn, config),
      forwardOnly,
    };
    const output = startForwardBackward(this.#context, this.#requests, pass, requestOptions);
    // What a known loss returns is the protocol's promise: a server with less is not refused.
    return output as APIFuture<ForwardBackwardOutput<L>>;
  }

  /**
   * Applies the gathered gradients with the optimizer chosen at the model's creation (AdamW unless told otherwise).
   * Rejects when one of the passes since the last step failed, unless you had seen that before this call.
   */
  optimStep(params: DimuonParams | OtherOptimParams, options?: RequestOptions): APIFuture<OptimStepResponse>;
  // Apart from those above, which may have parameters of any name: with them, a misspelt one would compile.
  optimStep(params?: AdamParams, options?: RequestOptions): APIFuture<OptimStepResponse>;
  optimStep(params: OptimParams = {}, options: RequestOptions = {}): APIFuture<OptimStepResponse> {
    checkObject(params, "the argument of optimStep");
    const checked = optimParams.check(params, "");
    const request = this.#request(
      endpoints.optimStep,
      "type" in checked ? { optimizerParams: checked } : { adamParams: checked },
    );
    const withGradients = this.#gradients.takeForStep();
    return startOperation(this.#context, options.signal, async (signal, onAccepted) => {
      const [result] = await withGradients(
        this.#requests.run([request], options, signal, onAccepted),
        signal,
      );
      return result!;
    });
  }

  /** Saves weights and optimizer state under a name. */
  saveState(name: string, options: SaveStateOptions = {}): APIFuture<{ path: string }> {
    checkName(name, "name");
    const { ttlSeconds, userMetadata, overwrite = false } = options;
    const given = { path: name, ttlSeconds, userMetadata, overwrite };
    const doneAlready = {
      statuses: [409],
      result: { path: formatTinkerPath(this.modelId, "weights", name) },
    };
    return this.#requests.start({ ...this.#request(endpoints.saveWeights, given), doneAlready }, options);
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
    const { weightsAccessToken } = options;
    this.#gradients.forget();
    return this.#requests.start(
      this.#request(endpoints.loadWeights, { path, optimizer, weightsAccessToken }),
      options,
    );
  }

  /** Saves weights for sampling under a name that outlives this session. */
  saveWeightsForSampler(name: string, options: SaveOptions = {}): APIFuture<{ path: string }> {
    checkName(name, "name");
    const { ttlSeconds, userMetadata } = options;
    const request = this.#request(endpoints.saveWeightsForSampler, { path: name, ttlSeconds, userMetadata });
    const savedPath = formatTinkerPath(this.modelId, "sampler_weights", name);
    const doneAlready = { statuses: [409], result: { path: savedPath } };
    return this.#requests.start({ ...request, doneAlready }, options, ({ path }) => savedAt(path, name));
  }

  /** Saves weights in a format other tools read, optionally encrypted to age recipients. */
  saveWeightsExternal(
    name: string,
    options: RequestOptions & {
      ttlSeconds?: number | undefined;
      ageEncryptionRecipients?: readonly string[] | undefined;
    } = {},
  ): APIFuture<{ path: string }> {
    checkName(name, "name");
    const { ttlSeconds, ageEncryptionRecipients } = options;
    const request = this.#request(endpoints.saveWeightsExternal, {
      path: name,
      ttlSeconds,
      ageEncryptionRecipients,
    });
    return this.#requests.start(request, options, ({ path }) => savedAt(path, name));
  }

  /** A sampler of the weights as they are after the calls made so far. Lives as long as the session. */
  async saveWeightsAndGetSamplingClient(
    options: SamplingClientOptions & RequestOptions = {},
  ): Promise<SamplingClient> {
    const samplingSessionSeqId = this.#context.session.nextSamplingSessionSeqId();
    const request = this.#request(endpoints.saveWeightsForSampler, { samplingSessionSeqId });
    const { samplingSessionId } = await this.#requests.start(request, options);
    if (typeof samplingSessionId !== "string")
      throw new TinkerError("The server saved the weights but opened no sampling session.");
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
  getInfo(options: RequestOptions = {}): Promise<ModelInfo> {
    return deliverPlain(this.#context, endpoints.getInfo, { modelId: this.modelId }, options);
  }

  /** The tokenizer of the model: from the package, the cache, the server or the hub. Loaded once for the process. */
  async getTokenizer(options: LoadTokenizerOptions & RequestOptions = {}): Promise<Tokenizer> {
    const { signal, timeout, maxRetries, headers, ...loading } = options;
    const info = await this.getInfo({ signal, timeout, maxRetries, headers });
    const { modelName, tokenizerId } = info.modelData;
    const { tokenizerOfServer } = await import("../../tokenizers/load.js");
    const model = { modelName: modelName ?? info.modelName ?? "", tokenizerId };
    return await tokenizerOfServer(this.#context.http, model, { ...loading, signal });
  }

  /** Frees the model on the server, after the calls made so far. It cannot be used afterwards. */
  unloadModel(options: RequestOptions = {}): APIFuture<void> {
    const request: ModelRequest<unknown> = {
      kind: endpoints.unloadModel.future,
      isUnnumbered: true,
      doneAlready: { statuses: [404, 410], result: {} },
      send: (_, settings) => this.#send(endpoints.unloadModel, { modelId: this.modelId }, settings),
    };
    return this.#requests.start(request, options, () => undefined);
  }

  /** This run's page in the Tinker console. */
  getConsoleUrl(): string {
    return consoleUrls.trainingRun(this.modelId);
  }

  /** A request that carries the model's id and its number. */
  #request<S extends Shape, T>(
    endpoint: OperationEndpoint<S, T>,
    given: Omit<GivenMessage<S>, "modelId" | "seqId">,
  ): ModelRequest<T> {
    const checked = endpoint.request.check({ ...given, modelId: this.modelId }, "");
    return {
      kind: endpoint.future,
      send: (seqId, settings) =>
        this.#send(endpoint, { ...checked, seqId } as unknown as GivenMessage<S>, settings),
    };
  }

  #send<S extends Shape>(endpoint: OperationEndpoint<S>, given: GivenMessage<S>, settings: AttemptSettings) {
    return this.#context.http.exchange(attemptOf(encodeRequest(endpoint, given), settings));
  }
}

function savedAt(path: string | null | undefined, name: string): { path: string } {
  if (typeof path !== "string") throw new TinkerError(`The server saved "${name}" but did not say where.`);
  return { path };
}

function checkPassOptions(options: unknown, lossFn: string): void {
  checkObject(options, "options");
  const settings = describeLoss(lossFn)?.config ?? {};
  const misplaced = Object.keys(options).find((key) => Object.hasOwn(settings, key));
  if (misplaced !== undefined)
    throw new ValidationError(misplaced, `unknown field ${misplaced}; did you mean config.${misplaced}?`);
  checkKeys(options, PASS_KEYS, "");
}

function countOf(data: readonly unknown[]): string {
  return data.length === 1 ? "1 datum" : `${data.length} datums`;
}

function checkData(data: unknown): void {
  if (!Array.isArray(data) || data.length === 0) {
    throw new ValidationError("data", "data must be a list of at least one datum");
  }
}

function checkName(name: unknown, field: string): asserts name is string {
  if (typeof name !== "string" || name.trim() === "") {
    throw new ValidationError(field, `${field} must be a non-empty string, got ${JSON.stringify(name)}`);
  }
}
