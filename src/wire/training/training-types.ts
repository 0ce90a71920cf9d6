import type { Datum } from "./datum.js";
import type { LossFnOutput, LossMetrics } from "./losses.js";

/** Hyperparameters of one Adam step; what is left out takes the value named in its comment. */
export interface AdamParams {
  /** Step size; 1e-4. */
  readonly learningRate?: number | undefined;
  /** Decay of the running mean of gradients; 0.9. */
  readonly beta1?: number | undefined;
  /** Decay of the running mean of squared gradients; 0.95. */
  readonly beta2?: number | undefined;
  /** Added to the denominator; 1e-12. */
  readonly eps?: number | undefined;
  /** Decoupled weight decay; 0. */
  readonly weightDecay?: number | undefined;
  /** Largest global gradient norm, 0 means no clipping; 0. */
  readonly gradClipNorm?: number | undefined;
}

/** Hyperparameters of one Dimuon step. */
export interface DimuonParams {
  readonly type: "dimuon";
  readonly learningRate: number;
  /** Largest global gradient norm, 0 or less means no clipping; 0. */
  readonly gradClipNorm?: number | undefined;
  /** Decay of the momentum, at least 0 and below 1; 0.9. */
  readonly beta1?: number | undefined;
}

/** Hyperparameters of an optimizer family these types do not know yet, told apart by `type`. */
export interface OtherOptimParams {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** Parameters of one optimizer step; without `type` they are Adam's. */
export type OptimParams = AdamParams | DimuonParams | OtherOptimParams;

/** AdamW, the optimizer of every Tinker server. */
export interface AdamOptimizerConfig {
  readonly type: "adamw";
}

/** Dimuon, where a server has it. */
export interface DimuonOptimizerConfig {
  readonly type: "dimuon";
  readonly version?: 1 | undefined;
}

/** An optimizer family these types do not know yet, told apart by `type`. */
export interface OtherOptimizerConfig {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** The optimizer a model is created with; it stays the same for the model's whole life. */
export type OptimizerConfig = AdamOptimizerConfig | DimuonOptimizerConfig | OtherOptimizerConfig;

/** Shape of the LoRA adapters; what is left out takes the value named in its comment. */
export interface LoraConfig {
  readonly rank: number;
  /** Seed of the adapter's first weights; the server picks one when absent. */
  readonly seed?: number | undefined;
  /** Adapt the unembedding layer; true. */
  readonly trainUnembed?: boolean | undefined;
  /** Adapt the MLP (and MoE) layers; true. */
  readonly trainMlp?: boolean | undefined;
  /** Adapt the attention layers; true. */
  readonly trainAttn?: boolean | undefined;
}

export interface CreateModelResponse {
  readonly modelId: string;
}

export interface UnloadModelResponse {
  readonly modelId: string;
}

/** One forward (and backward) pass over a batch. */
export interface ForwardBackwardRequest {
  readonly modelId: string;
  readonly seqId: number;
  readonly data: readonly Datum[];
  readonly lossFn: string;
  readonly lossFnConfig?: Readonly<Record<string, number | string>> | undefined;
  readonly forwardOnly: boolean;
}

/** What a pass returns: one record per datum, and metrics of the whole batch. */
export interface ForwardBackwardOutput<L extends string = string> {
  /** Kind of the records in `lossFnOutputs`, for example `ArrayRecord`. */
  readonly lossFnOutputType: string;
  /** One record per datum, in the order of the request. */
  readonly lossFnOutputs: readonly LossFnOutput<L>[];
  /** Metric names are the server's own, for example `loss:sum`. */
  readonly metrics: LossMetrics<L>;
}

/** What an optimizer step reports. */
export interface OptimStepResponse {
  readonly metrics?: Readonly<Record<string, number>> | null;
}

export interface SaveWeightsResponse {
  /** `tinker://<run>/weights/<name>` */
  readonly path: string;
}

export interface SaveWeightsForSamplerResponse {
  /** `tinker://<run>/sampler_weights/<name>`, for a named save. */
  readonly path?: string | null;
  /** For a save that goes straight into a sampling session. */
  readonly samplingSessionId?: string | null;
}

export interface SaveWeightsExternalResponse {
  /** `tinker://<run>/external_weights/<name>` */
  readonly path?: string | null;
  readonly sizeBytes?: number | null;
}

/** What was loaded, and into which model. */
export interface LoadWeightsResponse {
  readonly path?: string | null;
  readonly modelId?: string | null;
}

export interface CopyWeightsResponse {
  readonly tinkerPath: string;
}

/** Rank of a custom loss input: 0 a scalar, 1 `[T]`, 2 `[T, K]`. */
export type CustomLossInputRank = 0 | 1 | 2;

export interface CustomLossInput {
  /** `logprobs`, or the `loss_fn_inputs` key (its wire name) that the loss reads. */
  readonly name: string;
  readonly rank: CustomLossInputRank;
}

export type CustomLossNodeOp =
  | "placeholder"
  | "get_attr"
  | "call_function"
  | "call_method"
  | "call_module"
  | "output";

export interface CustomLossNode {
  readonly op: CustomLossNodeOp;
  readonly name: string;
  readonly target: string;
  readonly args?: readonly unknown[] | undefined;
  readonly kwargs?: Readonly<Record<string, unknown>> | undefined;
}

/** A traced loss as plain data: its nodes in execution order. */
export interface CustomLossGraph {
  readonly format?: 1 | undefined;
  readonly nodes: readonly CustomLossNode[];
}

export interface CreateCustomLossResponse {
  readonly lossId: string;
}
