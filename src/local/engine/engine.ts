import type { LossFnConfig, PublishedLoss } from "../../wire/training/losses.js";
import { EngineLostError, type GpuPrecision } from "./kernels/kernels.js";

export { EngineLostError, type GpuPrecision };

/** What the server tells about a base model. */
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

/** What an adapter is made of. */
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
  /** Model input, length N. */
  tokens: Int32Array;
  /** N x K, row-major. */
  targetTokens: Int32Array;
  /** K; 1 for plain targets. */
  targetsPerToken: number;
  /** N x K, and with every loss; absent means ones. */
  weights?: Float32Array;
  /** N, for the policy losses, as are the following. */
  advantages?: Float32Array;
  logprobs?: Float32Array;
  clipLowThreshold?: Float32Array;
  clipHighThreshold?: Float32Array;
}

/** The losses that the engine computes. */
export type LossName = PublishedLoss;

/** The settings of all losses; a loss reads its own. */
export type LossConfig = LossFnConfig<"ppo"> & LossFnConfig<"dro">;

/** One training pass; `forwardOnly` leaves the gradients alone. */
export interface ForwardBackwardCall {
  adapterId: string;
  data: EngineDatum[];
  lossFn: LossName;
  lossFnConfig: LossConfig;
  forwardOnly: boolean;
}

/** What a training pass came to. */
export interface ForwardBackwardResult {
  /** Per datum, N x K. */
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
  /** 0 = no clipping. */
  gradClipNorm: number;
}

/** A tensor beside its name. */
export interface NamedTensor {
  shape: number[];
  data: Float32Array;
}

/** All there is to save of an adapter. */
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

/** What sampled text has to be: any JSON object, or JSON that fits a schema. */
export type JsonConstraint = { type: "json_object" } | { type: "json_schema"; schema: unknown };

/** One sampling request, checked against the model. */
export interface SampleCall {
  requestId: string;
  /** Whose request it is: sessions take turns. Absent: one that all such requests share. */
  session?: string | undefined;
  /** Absent: the base model itself. */
  adapterId?: string | undefined;
  baseModel: string;
  prompt: Int32Array;
  numSamples: number;
  maxTokens: number;
  temperature: number;
  /** -1 or 0 = off. */
  topK: number;
  /** 1 = off. */
  topP: number;
  /** Absent: a fresh one. */
  seed?: number | undefined;
  /** Absent: the model's own end-of-sequence tokens; [] = none. */
  stopTokens?: number[] | undefined;
  stopStrings: string[];
  /** What the text of every sample has to be; `checkJsonConstraint` tells whether it can be promised. */
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

/** One sample. */
export interface SampledSequence {
  tokens: Int32Array;
  logprobs: Float32Array;
  stopReason: "stop" | "length";
  topk?: TopTokens;
}

/** One token of a sample, as soon as it is drawn. */
export interface SampledToken {
  /** Which sample of the request. */
  index: number;
  /** Which token of the sample; those of a request that begins again come again. */
  position: number;
  token: number;
  logprob: number;
  /** One row, where top-k logprobs are asked for. */
  topk?: TopTokens;
  /** On a sample's last token: why it ended. */
  stopReason?: SampledSequence["stopReason"];
}

/** Hears of the tokens of a request while it runs. */
export type OnToken = (token: SampledToken) => void;

/** All samples of a request, and what was asked about its prompt. */
export interface SampleResult {
  sequences: SampledSequence[];
  /** One for each prompt token; NaN for the first. */
  promptLogprobs?: Float32Array;
  topkPrompt?: TopTokens;
  /** Same shape as `targetPromptTokens`; 0 where the cell was -1. */
  targetPrompt?: Float32Array;
  /** [prompt length - 1, columns]. */
  alt?: TopTokens;
  promptCacheHitTokens: number;
}

/** Where to compute: `auto` takes a graphics card where there is one and the models are large enough to gain from it. */
export type DeviceSetting = "auto" | "cpu" | "gpu";

/** Where an engine computes. */
export interface EngineDevice {
  kind: "cpu" | "gpu";
  /** For people: "the CPU, 8 threads". */
  name: string;
  /** What else they should know, and could do about it. */
  note?: string;
}

/** What the server asks of the engine; the same whether it runs in this thread or in a worker. */
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
   * Calls back when the engine is lost, and all adapters with it, before those who wait for something are told. Whether a
   * new one takes its place is said by the calls that follow.
   */
  onLost(listener: OnLost): void;
  close(): Promise<void>;
}

/** Hears that an engine is lost, and why. */
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

/** What an engine has taken of the machine's memory, and what a new one with the same models and adapters would. */
export interface EngineMemory {
  reservedBytes: number;
  neededBytes: number;
}

/** An engine that a new one can go on for. */
export interface ReplaceableEngine extends Engine {
  memory(): Promise<EngineMemory>;
  /** All adapters; while nothing runs. */
  copyAdapters(): Promise<AdapterCopy[]>;
  placeAdapters(copies: AdapterCopy[]): Promise<void>;
}

/** How an engine is started. */
export interface EngineOptions {
  models: { name: string; path: string }[];
  /** Default: `auto`. */
  device?: DeviceSetting;
  /** Of products on a graphics card. Default: `exact`, as the CPU computes them. */
  precision?: GpuPrecision;
  /** Bytes of a graphics card that may be used. Default: most of them. */
  gpuMemoryBytes?: number;
  /** Threads for matrix work, the engine's own included. Default: the number of cores, at most 8. */
  threads?: number;
  /** Fused multiply-add: faster, but the bits then depend on the machine. */
  relaxedSimd?: boolean;
  /** Run in the calling thread instead of a worker (unit tests). */
  inThread?: boolean;
  /** Upper bound for the key-value cache of each model's sampler. Default: 512 MiB, on a card a part of what is left. */
  cacheBytes?: number;
}

/**
 * The caller asked for something that cannot be done as asked; the message says what and why. It crosses the worker
 * boundary by its name, as `CancelledError` and `EngineLostError` do.
 */
export class EngineInputError extends Error {
  override name = "EngineInputError";
}

/** The sample was cancelled, or the engine closed, before it had finished. */
export class CancelledError extends Error {
  override name = "CancelledError";
}
