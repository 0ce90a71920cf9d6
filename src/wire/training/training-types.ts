import type { Datum } from "./datum.js";
import type { LossFnOutput, LossMetrics } from "./losses.js";

/** Hyperparameters of one Adam step; what is left out takes the value named in its comment. */
export interface AdamParams {
  /** Learning rate of the step; default 1e-4. */
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

/** Hyperparameters of an optimizer family that these types do not have yet, distinguished by `type`. */
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

/** An optimizer family that these types do not have yet, distinguished by `type`. */
export interface OtherOptimizerConfig {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** The optimizer a model is created with; it cannot change later. */
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

/** One forward (and backward) pass over a batch. */
export interface ForwardBackwardRequest {
  readonly modelId: string;
  readonly seqId: number;
  readonly data: readonly Datum[];
  readonly lossFn: string;
  readonly lossFnConfig?: Readonly<Record<string, number | string>> | undefined;
  readonly forwardOnly: boolean;
}

/** Result of a forward (and backward) pass: one record per datum, and metrics of the whole batch. */
export interface ForwardBackwardOutput<L extends string = string> {
  /** Kind of the records in `lossFnOutputs`, for example `ArrayRecord`. */
  readonly lossFnOutputType: string;
  /** One record per datum, in the order of the request. */
  readonly lossFnOutputs: readonly LossFnOutput<L>[];
  /** Metric names are the server's own, for example `loss:sum`. */
  readonly metrics: LossMetrics<L>;
}

/** Metrics that an optimizer step reports. */
export interface OptimStepResponse {
  readonly metrics?: Readonly<Record<string, number>> | null;
}

/** Path that was loaded, and the model it was loaded into. */
export interface LoadWeightsResponse {
  readonly path?: string | null;
  readonly modelId?: string | null;
}
