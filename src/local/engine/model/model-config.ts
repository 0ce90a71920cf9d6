import { z } from "zod";
import { EngineInputError } from "../engine.js";
import type { ModelFiles } from "./model-files.js";

/** How rotary angles are stretched beyond the lengths a model was first trained on. */
export type RopeScaling =
  | { type: "linear"; factor: number }
  | {
      type: "llama3";
      factor: number;
      lowFreqFactor: number;
      highFreqFactor: number;
      originalMaxPositions: number;
    };

/** Configuration of a decoder. */
export interface ModelConfig {
  arch: "llama" | "mistral" | "qwen2" | "qwen3";
  hiddenSize: number;
  layers: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  intermediateSize: number;
  vocabSize: number;
  maxPositions: number;
  rmsEps: number;
  ropeTheta: number;
  ropeScaling: RopeScaling | undefined;
  tiedHead: boolean;
  qkNorm: boolean;
  qkvBias: boolean;
  outputBias: boolean;
  eosTokenIds: number[];
}

const SIZE = z.number().int().positive().max(1_000_000_000);
const TOKEN_IDS = z
  .union([z.number().int().nonnegative(), z.array(z.number().int().nonnegative())])
  .nullish();
const ROPE_SETTINGS = z.looseObject({
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: z.number().positive().optional(),
  factor: z.number().positive().optional(),
  low_freq_factor: z.number().positive().optional(),
  high_freq_factor: z.number().positive().optional(),
  original_max_position_embeddings: SIZE.optional(),
  partial_rotary_factor: z.number().nullish(),
});
const ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3"] as const;
const CONFIG_FILE = z.looseObject({
  model_type: z.enum(ARCHITECTURES),
  hidden_size: SIZE,
  num_hidden_layers: SIZE,
  num_attention_heads: SIZE,
  num_key_value_heads: SIZE.nullish(),
  head_dim: SIZE.nullish(),
  intermediate_size: SIZE,
  vocab_size: SIZE,
  max_position_embeddings: SIZE.default(2048),
  rms_norm_eps: z.number().positive().default(1e-6),
  rope_theta: z.number().positive().optional(),
  rope_scaling: ROPE_SETTINGS.nullish(),
  rope_parameters: ROPE_SETTINGS.nullish(),
  tie_word_embeddings: z.boolean().optional(),
  attention_bias: z.boolean().optional(),
  mlp_bias: z.boolean().optional(),
  hidden_act: z.string().default("silu"),
  use_sliding_window: z.boolean().optional(),
  sliding_window: z.number().nullish(),
  layer_types: z.array(z.string()).nullish(),
  partial_rotary_factor: z.number().nullish(),
  quantization_config: z.unknown().optional(),
  eos_token_id: TOKEN_IDS,
});

/** The configuration of a model's files, with the end-of-sequence tokens of `generation_config.json` where there is one. */
export function modelConfigOf(files: Pick<ModelFiles, "path" | "config" | "generationConfig">): ModelConfig {
  const config = parseModelConfig(files.config, files.path);
  const parsed = z.looseObject({ eos_token_id: TOKEN_IDS }).safeParse(files.generationConfig);
  const ids = parsed.success ? listOf(parsed.data.eos_token_id) : [];
  return ids.length > 0 ? { ...config, eosTokenIds: ids } : config;
}

/** Takes what the decoder needs from the `config.json` of a Llama- or Qwen-family model, and refuses what it cannot compute. */
export function parseModelConfig(json: unknown, where: string): ModelConfig {
  const named = z.looseObject({ model_type: z.string() }).safeParse(json);
  // Reported alone: other problems of such a config would only confuse.
  if (named.success && !ARCHITECTURES.some((known) => known === named.data.model_type)) {
    throw new EngineInputError(
      `${where}/config.json: model_type ${named.data.model_type} is not supported, only ${ARCHITECTURES.join(", ")} are`,
    );
  }
  const parsed = CONFIG_FILE.safeParse(json);
  if (!parsed.success) throw new EngineInputError(`${where}/config.json: ${z.prettifyError(parsed.error)}`);
  const file = parsed.data;
  const refuse = (what: string): never => {
    throw new EngineInputError(`${where}/config.json: ${what} is not supported`);
  };
  if (file.hidden_act !== "silu") refuse(`hidden_act ${file.hidden_act}`);
  if (file.mlp_bias) refuse("mlp_bias");
  if (file.quantization_config) refuse("a quantized model (quantization_config)");
  if (windowOf(file) < file.max_position_embeddings) refuse("sliding-window attention");
  const foreign = file.layer_types?.find((type) => !/^(full|sliding)_attention$/.test(type));
  if (foreign !== undefined) refuse(`a layer of type ${foreign}`);
  const kvHeads = file.num_key_value_heads ?? file.num_attention_heads;
  const headDim =
    file.head_dim ?? (file.model_type === "qwen3" ? 128 : file.hidden_size / file.num_attention_heads);
  if (!Number.isInteger(headDim) || headDim % 2 !== 0) refuse(`a head dimension of ${headDim}`);
  if (file.num_attention_heads % kvHeads !== 0) {
    refuse(`num_attention_heads ${file.num_attention_heads} with num_key_value_heads ${kvHeads}`);
  }
  const rope = file.rope_parameters ?? file.rope_scaling ?? undefined;
  const rotated = rope?.partial_rotary_factor ?? file.partial_rotary_factor ?? 1;
  if (rotated !== 1) refuse(`partial_rotary_factor ${rotated}`);
  const qwen2 = file.model_type === "qwen2";
  return {
    arch: file.model_type,
    hiddenSize: file.hidden_size,
    layers: file.num_hidden_layers,
    heads: file.num_attention_heads,
    kvHeads,
    headDim,
    intermediateSize: file.intermediate_size,
    vocabSize: file.vocab_size,
    maxPositions: file.max_position_embeddings,
    rmsEps: file.rms_norm_eps,
    ropeTheta: rope?.rope_theta ?? file.rope_theta ?? 10000,
    ropeScaling: rope ? parseRopeScaling(rope, file.max_position_embeddings, refuse) : undefined,
    tiedHead: file.tie_word_embeddings ?? false,
    qkNorm: file.model_type === "qwen3",
    qkvBias: qwen2 || (file.attention_bias ?? false),
    outputBias: !qwen2 && (file.attention_bias ?? false),
    eosTokenIds: listOf(file.eos_token_id),
  };
}

/** How far back attention looks, as transformers reads the same file. */
function windowOf(file: z.infer<typeof CONFIG_FILE>): number {
  const unlimited = Number.POSITIVE_INFINITY;
  switch (file.model_type) {
    case "llama":
      return unlimited;
    case "mistral":
      return (file.sliding_window === undefined ? 4096 : file.sliding_window) ?? unlimited;
    case "qwen2":
    case "qwen3":
      if (!file.use_sliding_window && !file.layer_types?.includes("sliding_attention")) return unlimited;
      return file.sliding_window ?? 4096;
    default:
      return file.model_type satisfies never;
  }
}

function parseRopeScaling(
  rope: z.infer<typeof ROPE_SETTINGS>,
  maxPositions: number,
  refuse: (what: string) => never,
): RopeScaling | undefined {
  const type = rope.rope_type ?? rope.type ?? "default";
  if (type === "default") return undefined;
  if (type !== "linear" && type !== "llama3") throw refuse(`rope_scaling of type ${type}`);
  const needed = <T>(key: string, value: T | undefined): T => {
    if (value === undefined) throw refuse(`rope_scaling of type ${type} without ${key}`);
    return value;
  };
  const factor = needed("factor", rope.factor);
  if (type === "linear") return { type, factor };
  return {
    type,
    factor,
    lowFreqFactor: needed("low_freq_factor", rope.low_freq_factor),
    highFreqFactor: needed("high_freq_factor", rope.high_freq_factor),
    originalMaxPositions: rope.original_max_position_embeddings ?? maxPositions,
  };
}

/** Widths of a row of queries, of keys (or values), and of all three side by side. */
export function attentionWidths(config: ModelConfig): { query: number; key: number; qkv: number } {
  const query = config.heads * config.headDim;
  const key = config.kvHeads * config.headDim;
  return { query, key, qkv: query + 2 * key };
}

function listOf(ids: number | number[] | null | undefined): number[] {
  if (ids === null || ids === undefined) return [];
  return Array.isArray(ids) ? ids : [ids];
}
