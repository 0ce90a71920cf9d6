import type { AnswerShape } from "../../renderers/answer-shape.js";
import type { CustomLossGraph, CustomLossInput } from "../../wire/training/custom-loss-graph.js";
import type { LossFnConfig, PublishedLoss } from "../../wire/training/losses.js";
import { EngineLostError, type GpuPrecision } from "./kernels/kernels.js";

export { EngineLostError, type GpuPrecision };

/** Facts about a base model that the server reports. */
export interface BaseModelInfo {
  name: string;
  /** The model's own, or what the key-value cache holds where that is less. */
  maxContextLength: number;
  vocabSize: number;
  /** The tokens that end a text. */
  eosTokenIds: readonly number[];
  /** The model's folder, which holds `tokenizer.json` where the model has one. */
  tokenizerPath: string;
  arch: string;
  parameters: number;
}

/** Settings of a LoRA adapter: its rank and layers. */
export interface LoraSettings {
  rank: number;
  seed: number;
  trainAttn: boolean;
  trainMlp: boolean;
  trainUnembed: boolean;
}

/** PEFT's `lora_alpha`; the adapter's output is scaled by this over the rank. */
export const LORA_ALPHA = 32;

/** One sequence to train on, its shapes and tokens checked. */
export interface EngineDatum {
  /** Token ids of the input, length N. */
  tokens: Int32Array;
  /** Target token ids, N x K, row-major. */
  targetTokens: Int32Array;
  /** Targets for each token, K; 1 for plain targets. */
  targetsPerToken: number;
  /** Weights of the targets, N x K, for every loss; absent means ones. */
  weights?: Float32Array;
  /** Advantages of the tokens, length N; like the following, for policy losses. */
  advantages?: Float32Array;
  logprobs?: Float32Array;
  clipLowThreshold?: Float32Array;
  clipHighThreshold?: Float32Array;
  /** For `gspo`: the tokens that make up a sequence's ratio. */
  sequenceRatioMask?: Float32Array;
  /** For `custom`: the inputs of the loss after the logprobs, in its order. */
  customInputs?: CustomInput[];
}

/** A value that a custom loss reads. */
export interface CustomInput {
  values: Float64Array;
  shape: readonly number[];
  dtype: "float32" | "int64";
}

/** The losses that the engine computes; the last two are sums over sequences, not over tokens. */
export type LossName = PublishedLoss | "gspo" | "custom";

/** A custom loss as data; see `wire/training/custom-loss-graph.ts`. */
export interface CustomLoss {
  inputs: readonly CustomLossInput[];
  graph: CustomLossGraph;
}

/** The settings of all losses; a loss reads its own. */
export type LossConfig = LossFnConfig<"ppo"> & LossFnConfig<"dro">;

/** One training pass; `forwardOnly` leaves the gradients alone. */
export interface ForwardBackwardCall {
  adapterId: string;
  data: EngineDatum[];
  lossFn: LossName;
  lossFnConfig: LossConfig;
  /** Stored loss of a pass with the loss `custom`. */
  customLoss?: CustomLoss | undefined;
  forwardOnly: boolean;
}

/** Result of a training pass. */
export interface ForwardBackwardResult {
  /** Logprobs of the targets of each datum, N x K. */
  logprobs: Float32Array[];
  metrics: Record<string, number>;
}

/** The settings of one optimizer step. */
export interface AdamSettings {
  learningRate: number;
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
  /** Largest global gradient norm; 0 = no clipping. */
  gradClipNorm: number;
}

/** Shape and values of a named tensor. */
export interface NamedTensor {
  shape: number[];
  data: Float32Array;
}

/** Complete state of an adapter, as it is saved. */
export interface AdapterState {
  lora: LoraSettings;
  /** By PEFT name, e.g. `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`. */
  tensors: Record<string, NamedTensor>;
  optimizer?: {
    step: number;
    first: Record<string, Float32Array>;
    second: Record<string, Float32Array>;
  };
}

/** Constraint on sampled text: any JSON object, JSON that fits a schema, or an answer of a shape, such as a call. */
export type JsonConstraint =
  | { readonly type: "json_object" }
  | { readonly type: "json_schema"; readonly schema: unknown }
  | { readonly type: "shape"; readonly shape: AnswerShape };

/** One sampling request, checked against the model. */
export interface SampleCall {
  requestId: string;
  /** Owners take turns, and find only their own prompts in the prefix cache. Absent: one that all such requests share. */
  owner?: string | undefined;
  /** The sessions of an owner take turns. Absent: one that all such requests share. */
  session?: string | undefined;
  /** Absent: the base model itself. */
  adapterId?: string | undefined;
  baseModel: string;
  prompt: Int32Array;
  numSamples: number;
  maxTokens: number;
  temperature: number;
  /** Number of likeliest tokens to draw from; -1 or 0 = off. */
  topK: number;
  /** Nucleus sampling threshold; 1 = off. */
  topP: number;
  /** Seed of the samples. Absent: a random one. */
  seed?: number | undefined;
  /** Absent: the model's own end-of-sequence tokens; [] = none. */
  stopTokens?: number[] | undefined;
  stopStrings: string[];
  /** Constraint on the text of every sample; `checkJsonConstraint` says whether it can be guaranteed. */
  constraint?: JsonConstraint | undefined;
  promptLogprobs: boolean;
  /** 0 = off, here and below. */
  topkPromptLogprobs: number;
  topkSampleLogprobs: number;
  /** [prompt length - 1, columns]: row i holds tokens to score at prompt position i + 1; -1 cells ask for nothing. */
  targetPromptTokens?: { ids: Int32Array; columns: number };
  /** This many draws, with replacement and at the request's temperature, for every prompt position after the first. */
  promptAltTokens: number;
  /** Score only the last so many prompt tokens; the others get NaN (or empty top-k cells). */
  promptLogprobsLastN?: number;
}

/** `columns` entries for each row, best first; empty cells are token 0 with logprob -99999. */
export interface TopTokens {
  columns: number;
  tokens: Int32Array;
  logprobs: Float32Array;
}

/** One sample: its tokens, logprobs and stop reason. */
export interface EngineSample {
  tokens: Int32Array;
  logprobs: Float32Array;
  stopReason: "stop" | "length";
  topk?: TopTokens;
}

/** One token of a sample, as soon as it is drawn. */
export interface SampledToken {
  /** Index of the sample in the request. */
  index: number;
  /** Which token of the sample; those of a request that begins again come again. */
  position: number;
  token: number;
  logprob: number;
  /** One row, if top-k logprobs were requested. */
  topk?: TopTokens;
  /** On a sample's last token: why it ended. */
  stopReason?: EngineSample["stopReason"];
}

/** Called with each token of a request as it is drawn. */
export type OnToken = (token: SampledToken) => void;

/** All samples of a request, and what was asked about its prompt. */
export interface SampleResult {
  sequences: EngineSample[];
  /** One for each prompt token; NaN for the first. */
  promptLogprobs?: Float32Array;
  topkPrompt?: TopTokens;
  /** Same shape as `targetPromptTokens`; 0 where the cell was -1. */
  targetPrompt?: Float32Array;
  /** [prompt length - 1, columns]. */
  alt?: TopTokens;
  promptCacheHitTokens: number;
}

/** Device to compute on: `auto` takes a GPU if there is one and the models are large enough to gain from it. */
export type DeviceSetting = "auto" | "cpu" | "gpu";

/** Device that an engine computes on. */
export interface EngineDevice {
  kind: "cpu" | "gpu";
  /** Name of the device for people: "the CPU, 8 threads". */
  name: string;
  /** Note for people, for example why no GPU is used and what to do. */
  note?: string;
}

/** Computes for the server: trains adapters and samples, in this thread or in a worker. */
export interface Engine {
  models(): Promise<BaseModelInfo[]>;
  device(): Promise<EngineDevice>;
  createAdapter(adapterId: string, baseModel: string, lora: LoraSettings): Promise<void>;
  forwardBackward(call: ForwardBackwardCall): Promise<ForwardBackwardResult>;
  optimStep(adapterId: string, adam: AdamSettings): Promise<{ metrics: Record<string, number> }>;
  exportAdapter(adapterId: string, options: { optimizer: boolean }): Promise<AdapterState>;
  importAdapter(
    adapterId: string,
    baseModel: string,
    state: AdapterState,
    options: { optimizer: boolean },
  ): Promise<void>;
  /** A frozen copy for a sampler: weights only. */
  cloneAdapter(fromId: string, toId: string): Promise<void>;
  removeAdapter(adapterId: string): Promise<void>;
  sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult>;
  /** The sample call rejects with a `CancelledError` unless it has finished. */
  cancelSample(requestId: string): void;
  /**
   * Calls back when the engine is lost, and all adapters with it, before waiting calls are rejected. Whether a
   * new one takes its place is said by the calls that follow.
   */
  onLost(listener: OnLost): void;
  close(): Promise<void>;
}

/** Called when an engine is lost, with the reason. */
export type OnLost = (error: EngineLostError) => void;

/** An adapter as it is, with the gradients gathered since its last step, for another engine to go on with. */
export interface AdapterCopy {
  adapterId: string;
  baseModel: string;
  lora: LoraSettings;
  step: number;
  weights: Float32Array;
  /** Absent where it has never been trained. */
  training?: { gradients: Float32Array; first: Float32Array; second: Float32Array };
}

/** Memory that an engine has taken, and that a new one with the same models and adapters would take. */
export interface EngineMemory {
  reservedBytes: number;
  neededBytes: number;
}

/** An engine whose work a new one can take over. */
export interface ReplaceableEngine extends Engine {
  memory(): Promise<EngineMemory>;
  /** Copies all adapters; call it while nothing runs. */
  copyAdapters(): Promise<AdapterCopy[]>;
  placeAdapters(copies: AdapterCopy[]): Promise<void>;
}

/** Options that an engine starts with. */
export interface EngineOptions {
  models: { name: string; path: string }[];
  /** Device to compute on. Default: `auto`. */
  device?: DeviceSetting;
  /** Precision of matrix products on a GPU. Default: `exact`, as the CPU computes them. */
  precision?: GpuPrecision;
  /** Bytes of GPU memory to use. Default: most of them. */
  gpuMemoryBytes?: number;
  /** Threads for matrix work, the engine's own included. Default: the number of cores, at most 8. */
  threads?: number;
  /** Fused multiply-add: faster, but the bits then depend on the machine. */
  relaxedSimd?: boolean;
  /** Run in the calling thread instead of a worker (unit tests). */
  inThread?: boolean;
  /** Upper bound for the key-value cache of each model's sampler. Default: 512 MiB, on a GPU a part of the free memory. */
  cacheBytes?: number;
}

/**
 * A request that the engine cannot fulfil; the message says what and why. It crosses the worker
 * boundary by its name, as `CancelledError` and `EngineLostError` do.
 */
export class EngineInputError extends Error {
  override name = "EngineInputError";
}

/** The sample was cancelled, or the engine closed, before it had finished. */
export class CancelledError extends Error {
  override name = "CancelledError";
}
