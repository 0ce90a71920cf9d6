import { TinkerError, ValidationError } from "../../errors.js";
import { type APIFuture, deliverPlain, startOperation } from "../../futures/index.js";
import { inSpan } from "../../session/index.js";
import type { LoadTokenizerOptions, Tokenizer } from "../../tokenizers/index.js";
import type { CustomLossFn, CustomLossResult } from "../../training/custom-loss.js";
import type { CustomLossHandle } from "../../training/custom-loss-handle.js";
import type { PerDatumLossFn } from "../../training/tracing/trace-loss.js";
import { REQUEST_FIELDS, REQUEST_OPTIONS, type RequestOptions } from "../../transport/index.js";
import {
  type AdamParams,
  anyText,
  boolean,
  checkLossFnConfig,
  checkLossFnInputs,
  checkLossFnName,
  checkObject,
  checkTinkerPath,
  Datum,
  type DatumLike,
  type DimuonParams,
  describeLoss,
  endpoints,
  type Field,
  type FieldsOf,
  type ForwardBackwardOutput,
  formatTinkerPath,
  type GivenMessage,
  type LoadWeightsResponse,
  type LossFnConfig,
  type LossFnName,
  list,
  type ModelInfo,
  metadata,
  type OperationEndpoint,
  type OptimParams,
  type OptimStepResponse,
  type OtherOptimParams,
  opaque,
  optimParams,
  optional,
  optionTable,
  parseTinkerPath,
  type Shape,
  samplerKind,
  ttlSeconds,
  withDefault,
} from "../../wire/index.js";
import { consoleUrls } from "../console-urls.js";
import type { ClientContext } from "../context.js";
import { type CreateCustomLossOptions, createCustomLoss } from "../custom-losses.js";
import { BaseModelName } from "../observers.js";
import {
  SAMPLING_CLIENT_FIELDS,
  SAMPLING_CLIENT_OPTIONS,
  SamplingClient,
  type SamplingClientOptions,
} from "../sampling/sampling-client.js";
import { startForwardBackward, startForwardBackwardCustom } from "./forward-backward.js";
import { GradientPasses } from "./gradient-passes.js";
import { type ModelRequest, ModelRequests } from "./model-requests.js";

/** Name of a loss that the server has and these types do not know. */
export interface UnlistedLoss {
  readonly name: string;
}

type LossNameOf<L> = L extends LossFnName ? L : string;

/** Options of `forward` and `forwardBackward`. */
export interface PassOptions<L extends string = string> extends RequestOptions {
  /** Settings of the loss. */
  config?: LossFnConfig<L> | undefined;
}

/** How long a checkpoint is kept, and its metadata. */
export interface SaveOptions extends RequestOptions {
  /** Seconds until the checkpoint expires; absent = never. */
  ttlSeconds?: number | undefined;
  userMetadata?: Record<string, string> | undefined;
}

/** Options of `saveState`: expiry, metadata, and whether to overwrite. */
export interface SaveStateOptions extends SaveOptions {
  /** Replace an existing checkpoint of the same name, its metadata included. */
  overwrite?: boolean | undefined;
}

/** Options of a sampler of a training client's current weights. */
export interface CurrentSamplerOptions extends SamplingClientOptions {
  /**
   * `snapshot`: the sampler keeps the weights it was made with. `inflight`: it follows the weights that this training
   * client publishes with later calls of this kind, also while it samples. Default: `snapshot`.
   */
  kind?: "snapshot" | "inflight" | undefined;
}

/** Options of `loadState` and `loadStateWithOptimizer`. */
export interface LoadStateOptions extends RequestOptions {
  /** Access token for a checkpoint of another account. */
  weightsAccessToken?: string | undefined;
}

const PASS_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  config: optional(opaque as Field<LossFnConfig<string>>),
} satisfies FieldsOf<PassOptions>);

const SAVE_FIELDS = {
  ...REQUEST_FIELDS,
  ttlSeconds: optional(ttlSeconds),
  userMetadata: optional(metadata as Field<Record<string, string>>),
} satisfies FieldsOf<SaveOptions>;
const SAVE_OPTIONS = optionTable(SAVE_FIELDS);
const SAVE_STATE_OPTIONS = optionTable({
  ...SAVE_FIELDS,
  overwrite: withDefault(boolean, false),
} satisfies FieldsOf<SaveStateOptions>);
const SAVE_EXTERNAL_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  ttlSeconds: SAVE_FIELDS.ttlSeconds,
  ageEncryptionRecipients: optional(list(anyText)),
});

const CURRENT_SAMPLER_OPTIONS = optionTable({
  ...SAMPLING_CLIENT_FIELDS,
  kind: withDefault(samplerKind, "snapshot"),
} satisfies FieldsOf<CurrentSamplerOptions & RequestOptions>);

const LOAD_STATE_OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  weightsAccessToken: optional(anyText),
} satisfies FieldsOf<LoadStateOptions>);

/**
 * Trains one LoRA adapter. Requests are sent at once, in the order of the calls; await the returned futures when you
 * need the results. Bad arguments throw before anything is sent and before the call takes its place in the order.
 */
export class TrainingClient {
  readonly modelId: string;
  readonly #context: ClientContext;
  readonly #requests: ModelRequests;
  readonly #gradients: GradientPasses;
  readonly #baseModel: BaseModelName;

  /** Made by a ServiceClient. */
  constructor(context: ClientContext, modelId: string, baseModel?: string) {
    this.#context = context;
    this.modelId = modelId;
    this.#baseModel = new BaseModelName(baseModel, async () => {
      const { modelData, modelName } = await this.getInfo();
      return modelData.modelName ?? modelName ?? undefined;
    });
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

  /** Computes losses and adds their gradients to those accumulated since the last `optimStep`. */
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
   * Computes your own loss over the logprobs of the target tokens and adds its gradients, like `forwardBackward`: a
   * forward pass, your function, and a backward pass with its gradients. Later calls wait until then. With a loss of
   * `createCustomLoss` that the server stores, it is one pass.
   */
  forwardBackwardCustom(
    data: readonly DatumLike[],
    lossFn: CustomLossFn | CustomLossHandle,
    options: RequestOptions = {},
  ): APIFuture<CustomLossResult> {
    checkData(data);
    const { modelId } = this;
    const call = {
      modelId,
      baseModel: this.#baseModel,
      data: Array.from(data, (like, index) => Datum.from(like, index)),
      lossFn,
    };
    const checked = REQUEST_OPTIONS.check(options, "forwardBackwardCustom");
    const future = startForwardBackwardCustom(this.#context, this.#requests, call, checked);
    return this.#gradients.add(`forwardBackwardCustom of ${countOf(data)}`, future);
  }

  /** Traces a loss and stores it on the server, as `ServiceClient.createCustomLoss` does. */
  createCustomLoss<Name extends string = never>(
    lossFn: PerDatumLossFn<Name>,
    options: CreateCustomLossOptions<Name> = {},
  ): Promise<CustomLossHandle> {
    return createCustomLoss(this.#context, lossFn as PerDatumLossFn, options);
  }

  #pass<L extends string>(
    data: readonly DatumLike[],
    loss: string | UnlistedLoss,
    options: PassOptions,
    forwardOnly: boolean,
  ): APIFuture<ForwardBackwardOutput<L>> {
    checkData(data);
    const lossFn: unknown = typeof loss === "object" && loss !== null ? loss.name : loss;
    // A loss named in an object is meant to be unknown here.
    if (lossFn === loss) checkLossFnName(lossFn);
    else checkName(lossFn, "lossFn.name");
    const { config, ...requestOptions } = checkPassOptions(options, lossFn, forwardOnly);
    const pass = {
      modelId: this.modelId,
      baseModel: this.#baseModel,
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
    // The protocol defines what a known loss returns; a server that returns less is not refused.
    return output as APIFuture<ForwardBackwardOutput<L>>;
  }

  /**
   * Applies the accumulated gradients with the optimizer chosen when the model was created (AdamW by default). Rejects
   * if a pass since the last step failed, unless you had seen that failure before this call.
   */
  optimStep(params: DimuonParams | OtherOptimParams, options?: RequestOptions): APIFuture<OptimStepResponse>;
  // Accepts any `OptimParams`; those without `type` may only have Adam's names, or a misspelt one would compile.
  optimStep<P extends OptimParams>(
    params: P extends { readonly type: string }
      ? P
      : AdamParams & object & { readonly [Name in Exclude<keyof P, keyof AdamParams>]: never },
    options?: RequestOptions,
  ): APIFuture<OptimStepResponse>;
  optimStep(params?: AdamParams, options?: RequestOptions): APIFuture<OptimStepResponse>;
  optimStep(params: OptimParams = {}, options: RequestOptions = {}): APIFuture<OptimStepResponse> {
    checkObject(params, "the options of optimStep");
    const settings = REQUEST_OPTIONS.check(options, "optimStep");
    const checked = optimParams.check(params, "");
    const request = this.#request(
      endpoints.optimStep,
      "type" in checked ? { optimizerParams: checked } : { adamParams: checked },
    );
    const withGradients = this.#gradients.takeForStep();
    return startOperation(this.#context, settings.signal, async (signal, onAccepted) => {
      const [result] = await withGradients(
        this.#requests.run([request], settings, signal, onAccepted),
        signal,
      );
      return result!;
    });
  }

  /** Saves weights and optimizer state under a name. */
  saveState(name: string, options: SaveStateOptions = {}): APIFuture<{ path: string }> {
    checkName(name, "name");
    const { ttlSeconds, userMetadata, overwrite, ...request } = SAVE_STATE_OPTIONS.check(
      options,
      "saveState",
    );
    const given = { path: name, ttlSeconds, userMetadata, overwrite };
    const doneAlready = {
      statuses: [409],
      result: { path: formatTinkerPath(this.modelId, "weights", name) },
    };
    const saved = this.#requests.start(
      { ...this.#request(endpoints.saveWeights, given), doneAlready },
      request,
    );
    return traced("save_state", name, saved);
  }

  /**
   * Loads weights without the optimizer. Only a model's first request may do this; see `createTrainingClientFromState`.
   */
  loadState(path: string, options: LoadStateOptions = {}): APIFuture<LoadWeightsResponse> {
    return this.#load(path, false, LOAD_STATE_OPTIONS.check(options, "loadState"));
  }

  /** Loads weights and optimizer state, so that training continues exactly where it was saved. */
  loadStateWithOptimizer(path: string, options: LoadStateOptions = {}): APIFuture<LoadWeightsResponse> {
    return this.#load(path, true, LOAD_STATE_OPTIONS.check(options, "loadStateWithOptimizer"));
  }

  #load(path: string, optimizer: boolean, options: LoadStateOptions): APIFuture<LoadWeightsResponse> {
    checkTinkerPath(path);
    const { weightsAccessToken, ...rest } = options;
    this.#gradients.forget();
    return this.#requests.start(
      this.#request(endpoints.loadWeights, { path, optimizer, weightsAccessToken }),
      rest,
    );
  }

  /** Saves weights for sampling under a name that outlives this session. */
  saveWeightsForSampler(name: string, options: SaveOptions = {}): APIFuture<{ path: string }> {
    checkName(name, "name");
    const { ttlSeconds, userMetadata, ...rest } = SAVE_OPTIONS.check(options, "saveWeightsForSampler");
    const request = this.#request(endpoints.saveWeightsForSampler, { path: name, ttlSeconds, userMetadata });
    const savedPath = formatTinkerPath(this.modelId, "sampler_weights", name);
    const doneAlready = { statuses: [409], result: { path: savedPath } };
    const saved = this.#requests.start({ ...request, doneAlready }, rest, ({ path }) => savedAt(path, name));
    return traced("save_weights", name, saved);
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
    const { ttlSeconds, ageEncryptionRecipients, ...rest } = SAVE_EXTERNAL_OPTIONS.check(
      options,
      "saveWeightsExternal",
    );
    const request = this.#request(endpoints.saveWeightsExternal, {
      path: name,
      ttlSeconds,
      ageEncryptionRecipients,
    });
    return this.#requests.start(request, rest, ({ path }) => savedAt(path, name));
  }

  /** Makes a sampler of the current weights, after the calls made so far. It lives as long as the session. */
  async saveWeightsAndGetSamplingClient(
    options: CurrentSamplerOptions & RequestOptions = {},
  ): Promise<SamplingClient> {
    const { kind, ...settings } = CURRENT_SAMPLER_OPTIONS.check(options, "saveWeightsAndGetSamplingClient");
    const samplingSessionSeqId = this.#context.session.nextSamplingSessionSeqId();
    const request = this.#request(endpoints.saveWeightsForSampler, {
      samplingSessionSeqId,
      kind: kind === "snapshot" ? undefined : kind,
    });
    const { samplingSessionId } = await traced("save_weights", "", this.#requests.start(request, settings));
    if (typeof samplingSessionId !== "string")
      throw new TinkerError("The server saved the weights but opened no sampling session.");
    return new SamplingClient(this.#context, samplingSessionId, settings, this.#baseModel);
  }

  /** A sampler of saved weights. */
  async createSamplingClient(
    modelPath: string,
    options: SamplingClientOptions & RequestOptions = {},
  ): Promise<SamplingClient> {
    const settings = SAMPLING_CLIENT_OPTIONS.check(options, "createSamplingClient");
    const isOwn = parseTinkerPath(modelPath, "modelPath").trainingRunId === this.modelId;
    return SamplingClient.create(this.#context, { modelPath }, settings, isOwn ? this.#baseModel : undefined);
  }

  /** Asks the server for this model's base model, tokenizer and LoRA settings. */
  async getInfo(options: RequestOptions = {}): Promise<ModelInfo> {
    const { modelId } = this;
    return deliverPlain(
      this.#context,
      endpoints.getInfo,
      { modelId },
      REQUEST_OPTIONS.check(options, "getInfo"),
    );
  }

  /** Tokenizer of the model: from the package, the cache, the server or the hub. Loaded once per process. */
  async getTokenizer(options: LoadTokenizerOptions & RequestOptions = {}): Promise<Tokenizer> {
    const { signal, timeout, maxRetries, headers, ...loading } = options;
    const info = await this.getInfo({ signal, timeout, maxRetries, headers });
    const { modelName, tokenizerId } = info.modelData;
    const { tokenizerOfServer } = await import("../../tokenizers/load.js");
    const model = { modelName: modelName ?? info.modelName ?? "", tokenizerId };
    return await tokenizerOfServer(this.#context.http, model, { ...loading, signal });
  }

  /** Frees the model on the server after the calls made so far. The client cannot be used afterwards. */
  unloadModel(options: RequestOptions = {}): APIFuture<void> {
    const { modelId } = this;
    const doneAlready = { statuses: [404, 410], result: { modelId } };
    const request = {
      endpoint: endpoints.unloadModel,
      message: { modelId },
      isUnnumbered: true,
      doneAlready,
    };
    return this.#requests.start(request, REQUEST_OPTIONS.check(options, "unloadModel"), () => undefined);
  }

  /** This run's page in the Tinker console. */
  getConsoleUrl(): string {
    return consoleUrls.trainingRun(this.modelId);
  }

  /** A checked request with the model's id; its number is added in its turn. */
  #request<S extends Shape, T>(
    endpoint: OperationEndpoint<S, T>,
    given: Omit<GivenMessage<S>, "modelId" | "seqId">,
  ): ModelRequest<T> {
    return { endpoint, message: endpoint.request.check({ ...given, modelId: this.modelId }, "") };
  }
}

/** A save with a span from its call to its end. */
function traced<T>(operation: string, name: string, saved: APIFuture<T>): APIFuture<T> {
  const attributes = { "tinkerts.checkpoint": name === "" ? undefined : name };
  const ended = () =>
    new Promise<void>((resolve, reject) => {
      saved.onEnd((failure) => (failure === undefined ? resolve() : reject(failure.error)));
    });
  inSpan(operation, { kind: "client", category: "save", attributes }, ended).catch(() => {});
  return saved;
}

function savedAt(path: string | null | undefined, name: string): { path: string } {
  if (typeof path !== "string") throw new TinkerError(`The server saved "${name}" but did not say where.`);
  return { path };
}

function checkPassOptions(options: PassOptions, lossFn: string, forwardOnly: boolean) {
  const settings = describeLoss(lossFn)?.config ?? {};
  const misplaced = Object.keys(options ?? {}).find((key) => Object.hasOwn(settings, key));
  if (misplaced !== undefined)
    throw new ValidationError(misplaced, `unknown field ${misplaced}; did you mean config.${misplaced}?`);
  return PASS_OPTIONS.check(options, forwardOnly ? "forward" : "forwardBackward");
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
