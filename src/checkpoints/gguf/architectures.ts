import type { GgufMetadata, GgufValue } from "./gguf-header.js";
import { type GgufSettings, needed, ropeMetadata } from "./gguf-settings.js";
import {
  asRowsOf,
  changedValues,
  type RowSource,
  reorderedColumns,
  reorderedRows,
  rowOf,
  stackedRows,
  transposedMatrices,
} from "./row-source.js";
import type { TensorBook } from "./tensor-book.js";

/** A tensor under its name in GGUF, before its type is chosen. */
export interface GgufSource {
  readonly name: string;
  /** Rows last. */
  readonly shape: readonly number[];
  readonly rows: RowSource;
}

/** A model in GGUF's terms. */
export interface GgufModel {
  readonly architecture: string;
  readonly metadata: GgufMetadata;
  readonly tensors: readonly GgufSource[];
}

type ModelType = GgufSettings["model_type"];

const ARCHITECTURES: Readonly<Record<ModelType, string>> = {
  llama: "llama",
  mistral: "llama",
  qwen2: "qwen2",
  qwen3: "qwen3",
  qwen3_moe: "qwen3moe",
  gpt_oss: "gpt-oss",
  qwen3_5: "qwen35",
  qwen3_5_text: "qwen35",
  qwen3_5_moe: "qwen35moe",
  qwen3_5_moe_text: "qwen35moe",
};

/** llama.cpp's name for the architecture of a model. */
export function ggufArchitecture({ model_type: type }: GgufSettings): string {
  return ARCHITECTURES[type];
}

/** Names and orders a model's tensors and settings as llama.cpp expects them. */
export function ggufModel(settings: GgufSettings, book: TensorBook): GgufModel {
  const architecture = ggufArchitecture(settings);
  const { metadata: rope, frequencyFactors } = ropeMetadata(settings, architecture);
  const metadata: Record<string, GgufValue> = { ...commonMetadata(settings, architecture), ...rope };
  const { hidden_size: hidden, vocab_size: vocab, num_hidden_layers: layers } = settings;
  const prefix = book.prefix();
  const norm = normOf(settings);
  const tensors: GgufSource[] = [];
  const add: AddTensor = (name, shape, rows) => tensors.push({ name, shape, rows });
  add("token_embd.weight", [vocab, hidden], book.take(`${prefix}embed_tokens.weight`, [vocab, hidden]));
  for (let layer = 0; layer < layers; layer++) {
    const at: Layer = {
      take: (name, ...shape) => book.take(`${prefix}layers.${layer}.${name}`, shape),
      has: (name) => book.has(`${prefix}layers.${layer}.${name}`),
      add: (name, shape, rows) => add(`blk.${layer}.${name}`, shape, rows),
      norm,
    };
    at.add("attn_norm.weight", [hidden], norm(at.take("input_layernorm.weight", hidden)));
    const secondNorm =
      architecture === "gpt-oss" || architecture.startsWith("qwen35") ? "post_attention_norm" : "ffn_norm";
    at.add(`${secondNorm}.weight`, [hidden], norm(at.take("post_attention_layernorm.weight", hidden)));
    if (at.has("linear_attn.in_proj_qkv.weight")) addLinearAttention(settings, at);
    else addAttention(settings, at);
    if (settings.model_type === "gpt_oss") addGptOssExperts(settings, at);
    else if (at.has("mlp.gate.weight")) addExperts(settings, at);
    else addMlp("mlp", "", needed(settings, "intermediate_size"), hidden, at);
  }
  add("output_norm.weight", [hidden], norm(book.take(`${prefix}norm.weight`, [hidden])));
  if (!settings.isTied) add("output.weight", [vocab, hidden], book.take("lm_head.weight", [vocab, hidden]));
  // Some files hold a copy of a tied head.
  else if (book.has("lm_head.weight")) book.take("lm_head.weight", [vocab, hidden]);
  if (frequencyFactors !== undefined)
    add("rope_freqs.weight", [frequencyFactors.length], rowOf(frequencyFactors));
  book.checkAllTaken();
  return { architecture, metadata, tensors };
}

type AddTensor = (name: string, shape: readonly number[], rows: RowSource) => void;

interface Layer {
  take(name: string, ...shape: number[]): RowSource;
  has(name: string): boolean;
  readonly add: AddTensor;
  readonly norm: (rows: RowSource) => RowSource;
}

function commonMetadata(settings: GgufSettings, architecture: string): Record<string, GgufValue> {
  const {
    experts,
    num_experts_per_tok: expertsUsed,
    moe_intermediate_size: expertSize = experts ? settings.intermediate_size : undefined,
    shared_expert_intermediate_size: sharedSize,
  } = settings;
  const isHybrid = architecture.startsWith("qwen35");
  const partial = settings.rope.partial_rotary_factor ?? settings.partial_rotary_factor;
  const sections = settings.rope.mrope_section ?? (isHybrid ? [11, 11, 10] : undefined);
  const valueHeads = isHybrid ? needed(settings, "linear_num_value_heads") : undefined;
  const sizes: Readonly<Record<string, number | null | undefined>> = {
    block_count: settings.num_hidden_layers,
    context_length: settings.contextLength,
    embedding_length: settings.hidden_size,
    feed_forward_length: settings.intermediate_size ?? expertSize,
    "attention.head_count": settings.num_attention_heads,
    "attention.head_count_kv": settings.kvHeads,
    "attention.key_length": settings.headDim,
    "attention.value_length": settings.headDim,
    "attention.sliding_window": architecture === "gpt-oss" ? settings.sliding_window : undefined,
    vocab_size: settings.vocab_size,
    "rope.dimension_count": Math.round(settings.headDim * (partial ?? 1)),
    expert_count: experts,
    expert_used_count: expertsUsed,
    expert_feed_forward_length: expertSize,
    expert_shared_feed_forward_length: sharedSize,
    full_attention_interval: isHybrid ? (settings.full_attention_interval ?? 4) : undefined,
    "ssm.conv_kernel": isHybrid ? needed(settings, "linear_conv_kernel_dim") : undefined,
    "ssm.state_size": isHybrid ? needed(settings, "linear_key_head_dim") : undefined,
    "ssm.group_count": isHybrid ? needed(settings, "linear_num_key_heads") : undefined,
    "ssm.time_step_rank": valueHeads,
    "ssm.inner_size": valueHeads && valueHeads * needed(settings, "linear_value_head_dim"),
  };
  const metadata: Record<string, GgufValue> = {
    [`${architecture}.attention.layer_norm_rms_epsilon`]: { float32: settings.rms_norm_eps },
  };
  for (const [key, value] of Object.entries(sizes)) {
    if (value) metadata[`${architecture}.${key}`] = { uint32: value };
  }
  if (sections) {
    const four = [0, 1, 2, 3].map((at) => sections[at] ?? 0);
    metadata[`${architecture}.rope.dimension_sections`] = { int32s: four };
  }
  return metadata;
}

/** Qwen3.5 stores the weights of its norms less 1. */
function normOf({ model_type: type }: GgufSettings): (rows: RowSource) => RowSource {
  return type.startsWith("qwen3_5") ? (rows) => changedValues(rows, (value) => value + 1) : (rows) => rows;
}

function addAttention(settings: GgufSettings, at: Layer): void {
  const { hidden_size: hidden, num_attention_heads: heads, kvHeads, headDim } = settings;
  const isHybrid = settings.model_type.startsWith("qwen3_5");
  // Beside each head's query, Qwen3.5 has a gate of the same size.
  const queryHeads = isHybrid ? 2 * heads : heads;
  const isPaired = settings.model_type === "llama" || settings.model_type === "mistral";
  const pairs = (rows: RowSource) => (isPaired ? pairedRotations(rows, headDim) : rows);
  for (const [theirs, ours, count] of [
    ["q", "attn_q", queryHeads],
    ["k", "attn_k", kvHeads],
    ["v", "attn_v", kvHeads],
  ] as const) {
    const size = count * headDim;
    const order = theirs === "v" ? (rows: RowSource) => rows : pairs;
    at.add(`${ours}.weight`, [size, hidden], order(at.take(`self_attn.${theirs}_proj.weight`, size, hidden)));
    if (!at.has(`self_attn.${theirs}_proj.bias`)) continue;
    const bias = asRowsOf(at.take(`self_attn.${theirs}_proj.bias`, size), 1);
    at.add(`${ours}.bias`, [size], asRowsOf(order(bias), size));
  }
  const inner = heads * headDim;
  at.add("attn_output.weight", [hidden, inner], at.take("self_attn.o_proj.weight", hidden, inner));
  if (at.has("self_attn.o_proj.bias"))
    at.add("attn_output.bias", [hidden], at.take("self_attn.o_proj.bias", hidden));
  for (const name of ["q", "k"]) {
    if (!at.has(`self_attn.${name}_norm.weight`)) continue;
    at.add(`attn_${name}_norm.weight`, [headDim], at.norm(at.take(`self_attn.${name}_norm.weight`, headDim)));
  }
  if (at.has("self_attn.sinks")) at.add("attn_sinks.weight", [heads], at.take("self_attn.sinks", heads));
}

/** llama.cpp turns values 2i and 2i + 1 of a Llama head together, Hugging Face values i and i + half. */
function pairedRotations(rows: RowSource, headDim: number): RowSource {
  return reorderedRows(rows, rows.rowCount, (row) => pairedRow(row, headDim));
}

/** Where a row of a query or key of GGUF's `llama` is in the Hugging Face tensor. */
export function pairedRow(row: number, headDim: number): number {
  const inside = row % headDim;
  return row - inside + (inside >> 1) + (inside % 2) * (headDim / 2);
}

function addMlp(from: string, suffix: string, size: number, hidden: number, at: Layer): void {
  for (const name of ["gate", "up"] as const)
    at.add(
      `ffn_${name}${suffix}.weight`,
      [size, hidden],
      at.take(`${from}.${name}_proj.weight`, size, hidden),
    );
  at.add(`ffn_down${suffix}.weight`, [hidden, size], at.take(`${from}.down_proj.weight`, hidden, size));
}

function addExperts(settings: GgufSettings, at: Layer): void {
  const { hidden_size: hidden } = settings;
  const experts = needed(settings, "experts");
  const size = needed(settings, "moe_intermediate_size");
  at.add("ffn_gate_inp.weight", [experts, hidden], at.take("mlp.gate.weight", experts, hidden));
  if (at.has("mlp.experts.gate_up_proj")) {
    const both = at.take("mlp.experts.gate_up_proj", experts, 2 * size, hidden);
    for (const [half, name] of ["gate", "up"].entries()) {
      const rows = reorderedRows(both, experts * size, (row) => {
        const inside = row % size;
        return 2 * (row - inside) + half * size + inside;
      });
      at.add(`ffn_${name}_exps.weight`, [experts, size, hidden], rows);
    }
    at.add(
      "ffn_down_exps.weight",
      [experts, hidden, size],
      at.take("mlp.experts.down_proj", experts, hidden, size),
    );
  } else {
    for (const [name, outputs, inputs] of [
      ["gate", size, hidden],
      ["up", size, hidden],
      ["down", hidden, size],
    ] as const) {
      const sources = Array.from({ length: experts }, (_, expert) =>
        at.take(`mlp.experts.${expert}.${name}_proj.weight`, outputs, inputs),
      );
      at.add(`ffn_${name}_exps.weight`, [experts, outputs, inputs], stackedRows(sources));
    }
  }
  if (!at.has("mlp.shared_expert_gate.weight")) return;
  at.add("ffn_gate_inp_shexp.weight", [hidden], at.take("mlp.shared_expert_gate.weight", 1, hidden));
  addMlp("mlp.shared_expert", "_shexp", needed(settings, "shared_expert_intermediate_size"), hidden, at);
}

function addGptOssExperts(settings: GgufSettings, at: Layer): void {
  const { hidden_size: hidden } = settings;
  const experts = needed(settings, "experts");
  const size = needed(settings, "intermediate_size");
  at.add("ffn_gate_inp.weight", [experts, hidden], at.take("mlp.router.weight", experts, hidden));
  at.add("ffn_gate_inp.bias", [experts], at.take("mlp.router.bias", experts));
  const both = at.take("mlp.experts.gate_up_proj", experts, hidden, 2 * size);
  const bothBiases = at.take("mlp.experts.gate_up_proj_bias", experts, 2 * size);
  // Gate and up stand side by side, value by value.
  for (const [first, name] of ["gate", "up"].entries()) {
    at.add(`ffn_${name}_exps.weight`, [experts, size, hidden], transposedMatrices(both, experts, first, 2));
    const biases = reorderedRows(asRowsOf(bothBiases, 1), experts * size, (row) => 2 * row + first);
    at.add(`ffn_${name}_exps.bias`, [experts, size], asRowsOf(biases, size));
  }
  const down = at.take("mlp.experts.down_proj", experts, size, hidden);
  at.add("ffn_down_exps.weight", [experts, hidden, size], transposedMatrices(down, experts));
  at.add("ffn_down_exps.bias", [experts, hidden], at.take("mlp.experts.down_proj_bias", experts, hidden));
}

function addLinearAttention(settings: GgufSettings, at: Layer): void {
  const { hidden_size: hidden } = settings;
  const keyHeads = needed(settings, "linear_num_key_heads");
  const valueHeads = needed(settings, "linear_num_value_heads");
  const valueDim = needed(settings, "linear_value_head_dim");
  const keys = 2 * keyHeads * needed(settings, "linear_key_head_dim");
  const values = valueHeads * valueDim;
  const kernel = needed(settings, "linear_conv_kernel_dim");
  const perKey = valueHeads / keyHeads;
  // The value heads of one key head stand together in Hugging Face files; in GGUF, the first of each key head come first.
  const head = (index: number) => (index % keyHeads) * perKey + Math.floor(index / keyHeads);
  const value = (row: number) => head(Math.floor(row / valueDim)) * valueDim + (row % valueDim);
  const behindKeys = (row: number) => (row < keys ? row : keys + value(row - keys));
  const all = keys + values;
  const heads = (name: string) =>
    asRowsOf(
      reorderedRows(asRowsOf(at.take(`linear_attn.${name}`, valueHeads), 1), valueHeads, head),
      valueHeads,
    );
  const ordered = (name: string, rows: number, order: (row: number) => number) =>
    reorderedRows(at.take(`linear_attn.${name}.weight`, rows, hidden), rows, order);
  at.add("attn_qkv.weight", [all, hidden], ordered("in_proj_qkv", all, behindKeys));
  at.add("attn_gate.weight", [values, hidden], ordered("in_proj_z", values, value));
  at.add("ssm_beta.weight", [valueHeads, hidden], ordered("in_proj_b", valueHeads, head));
  at.add("ssm_alpha.weight", [valueHeads, hidden], ordered("in_proj_a", valueHeads, head));
  const convolution = asRowsOf(at.take("linear_attn.conv1d.weight", all, 1, kernel), kernel);
  at.add("ssm_conv1d.weight", [all, kernel], reorderedRows(convolution, all, behindKeys));
  at.add(
    "ssm_a",
    [valueHeads],
    changedValues(heads("A_log"), (log) => -Math.exp(log)),
  );
  at.add("ssm_dt.bias", [valueHeads], heads("dt_bias"));
  at.add("ssm_norm.weight", [valueDim], at.take("linear_attn.norm.weight", valueDim));
  const out = at.take("linear_attn.out_proj.weight", hidden, values);
  at.add("ssm_out.weight", [hidden, values], reorderedColumns(out, value));
}
