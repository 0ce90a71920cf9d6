import { z } from "zod";
import { TinkerError } from "../../errors.js";
import type { GgufValue } from "./gguf-header.js";

const SIZE = z.number().int().positive().max(1_000_000_000);
const ROPE = z.looseObject({
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: z.number().positive().optional(),
  factor: z.number().positive().optional(),
  low_freq_factor: z.number().positive().optional(),
  high_freq_factor: z.number().positive().optional(),
  original_max_position_embeddings: z.number().positive().optional(),
  attention_factor: z.number().positive().nullish(),
  beta_fast: z.number().positive().nullish(),
  beta_slow: z.number().positive().nullish(),
  partial_rotary_factor: z.number().positive().nullish(),
  mrope_section: z.array(z.number().int().nonnegative()).nullish(),
});
type RopeFile = z.output<typeof ROPE>;

const MODEL_TYPES = [
  "llama",
  "mistral",
  "qwen2",
  "qwen3",
  "qwen3_moe",
  "gpt_oss",
  "qwen3_5",
  "qwen3_5_text",
  "qwen3_5_moe",
  "qwen3_5_moe_text",
] as const;
const CONFIG = z.looseObject({
  model_type: z.enum(MODEL_TYPES),
  hidden_size: SIZE,
  num_hidden_layers: SIZE,
  num_attention_heads: SIZE,
  num_key_value_heads: SIZE.nullish(),
  head_dim: SIZE.nullish(),
  intermediate_size: SIZE.nullish(),
  // Each token has a text in the file.
  vocab_size: z
    .number()
    .int()
    .positive()
    .max(1 << 24),
  max_position_embeddings: SIZE.default(2048),
  rms_norm_eps: z.number().positive().default(1e-6),
  rope_theta: z.number().positive().optional(),
  rope_scaling: ROPE.nullish(),
  rope_parameters: ROPE.nullish(),
  partial_rotary_factor: z.number().positive().nullish(),
  tie_word_embeddings: z.boolean().optional(),
  hidden_act: z.string().default("silu"),
  sliding_window: z.number().nullish(),
  use_sliding_window: z.boolean().optional(),
  layer_types: z.array(z.string()).nullish(),
  num_experts: SIZE.nullish(),
  num_local_experts: SIZE.nullish(),
  num_experts_per_tok: SIZE.nullish(),
  moe_intermediate_size: SIZE.nullish(),
  shared_expert_intermediate_size: SIZE.nullish(),
  norm_topk_prob: z.boolean().optional(),
  full_attention_interval: SIZE.nullish(),
  linear_conv_kernel_dim: SIZE.nullish(),
  linear_key_head_dim: SIZE.nullish(),
  linear_value_head_dim: SIZE.nullish(),
  linear_num_key_heads: SIZE.nullish(),
  linear_num_value_heads: SIZE.nullish(),
});

/** A model's `config.json`, checked, with what is said in several ways said in one. */
export type GgufSettings = z.output<typeof CONFIG> & {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly rope: RopeFile;
  readonly ropeTheta: number;
  readonly experts: number | undefined;
  /** Beyond this length attention would look further back than the model does. */
  readonly contextLength: number;
  readonly isTied: boolean;
};

/** Reads the settings of a model that has a form in GGUF; of a model with vision, those of its text part. */
export function ggufSettings(config: Readonly<Record<string, unknown>>, folder: string): GgufSettings {
  const inner = config["text_config"];
  const tied = config["tie_word_embeddings"];
  const flat =
    typeof inner === "object" && inner !== null
      ? { ...(inner as object), ...(typeof tied === "boolean" && { tie_word_embeddings: tied }) }
      : config;
  const type = (flat as { model_type?: unknown }).model_type;
  if (!MODEL_TYPES.some((known) => known === type)) {
    throw new TinkerError(
      `${folder} is a model of type ${String(type)}; GGUF files can be made of ${MODEL_TYPES.join(", ")}.`,
    );
  }
  const parsed = CONFIG.safeParse(flat);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    throw new TinkerError(`${folder}/config.json: ${path.join(".")}: ${message}.`);
  }
  const file = parsed.data;
  if (file.hidden_act !== "silu") {
    throw new TinkerError(`${folder}/config.json: hidden_act ${file.hidden_act} has no form in GGUF.`);
  }
  const rope = file.rope_parameters ?? file.rope_scaling ?? {};
  return {
    ...file,
    kvHeads: file.num_key_value_heads ?? file.num_attention_heads,
    headDim: file.head_dim ?? file.hidden_size / file.num_attention_heads,
    experts: file.num_experts ?? file.num_local_experts ?? undefined,
    rope,
    ropeTheta: rope.rope_theta ?? file.rope_theta ?? 10000,
    contextLength: Math.min(file.max_position_embeddings, windowOf(file)),
    isTied: file.tie_word_embeddings ?? false,
  };
}

/** The window of models whose windows llama.cpp does not know. */
function windowOf(file: z.output<typeof CONFIG>): number {
  const isWindowed =
    file.model_type === "mistral" || (file.model_type.startsWith("qwen") && file.use_sliding_window === true);
  return (isWindowed ? file.sliding_window : undefined) ?? Number.POSITIVE_INFINITY;
}

/** A setting that the architecture cannot do without. */
export function needed<K extends keyof GgufSettings>(
  settings: GgufSettings,
  key: K,
): NonNullable<GgufSettings[K]> {
  const value = settings[key];
  if (value === undefined || value === null) {
    throw new TinkerError(`config.json: ${String(key)} is missing; a ${settings.model_type} model needs it.`);
  }
  return value;
}

/** How positions are turned into angles, as metadata; of type llama3 as factors of the frequencies. */
export function ropeMetadata(
  settings: GgufSettings,
  architecture: string,
): { metadata: Record<string, GgufValue>; frequencyFactors: Float32Array | undefined } {
  const { rope, ropeTheta, headDim } = settings;
  const key = (name: string) => `${architecture}.rope.${name}`;
  const metadata: Record<string, GgufValue> = { [key("freq_base")]: { float32: ropeTheta } };
  const kind = rope.rope_type ?? rope.type ?? "default";
  const original = rope.original_max_position_embeddings ?? settings.max_position_embeddings;
  const refuse = (what: string) => new TinkerError(`config.json: ${what} has no form in GGUF.`);
  if (kind === "default" || kind === "mrope") return { metadata, frequencyFactors: undefined };
  if (rope.factor === undefined) throw new TinkerError(`config.json: a rope of type ${kind} needs a factor.`);
  switch (kind) {
    case "llama3":
      if (architecture !== "llama") throw refuse(`a rope of type llama3 in a ${settings.model_type} model`);
      return { metadata, frequencyFactors: llama3Factors(rope, rope.factor, ropeTheta, headDim, original) };
    case "yarn":
      if (typeof rope.attention_factor === "number") throw refuse("attention_factor of a yarn rope");
      metadata[key("scaling.original_context_length")] = { uint32: original };
      if (rope.beta_fast) metadata[key("scaling.yarn_beta_fast")] = { float32: rope.beta_fast };
      if (rope.beta_slow) metadata[key("scaling.yarn_beta_slow")] = { float32: rope.beta_slow };
      break;
    case "linear":
      break;
    default:
      throw refuse(`a rope of type ${kind}`);
  }
  metadata[key("scaling.type")] = kind;
  metadata[key("scaling.factor")] = { float32: rope.factor };
  return { metadata, frequencyFactors: undefined };
}

/** Llama 3 stretches low frequencies by the factor, leaves high ones, and blends between them. */
function llama3Factors(
  rope: RopeFile,
  factor: number,
  theta: number,
  headDim: number,
  original: number,
): Float32Array {
  const { low_freq_factor: low = 1, high_freq_factor: high = 4 } = rope;
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const waves = original / (2 * Math.PI * theta ** ((2 * i) / headDim));
    if (waves > high) return 1;
    if (waves < low) return factor;
    const blend = (waves - low) / (high - low);
    return 1 / ((1 - blend) / factor + blend);
  });
}
