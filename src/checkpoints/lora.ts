import { TinkerError } from "../errors.js";
import type { FloatTensor } from "./safetensors.js";

/** What adapter_config.json says of an adapter. */
export interface AdapterSettings {
  /** Hugging Face name or folder of the model the adapter belongs to. */
  baseModel: string | null;
  rank: number;
  /** The adapter's output is scaled by alpha / rank. */
  alpha: number;
  /** Names of the modules that have LoRA matrices, or a pattern. */
  targetModules: readonly string[] | string;
  /** Every other entry of adapter_config.json, under the name it has there. */
  otherSettings?: Readonly<Record<string, unknown>>;
}

/** The names of a module's two tensors: A is [rank, inputs], B is [outputs, rank]. */
export interface LoraPair {
  readonly a: string;
  readonly b: string;
}

const PREFIX = "base_model.model.";

/** The pairs of matrices among an adapter's tensors, by module: `model.layers.0.self_attn.q_proj`, `lm_head`. */
export function loraPairs(tensorNames: Iterable<string>, file: string): Map<string, LoraPair> {
  const found = new Map<string, { a?: string; b?: string }>();
  for (const name of tensorNames) {
    // PEFT puts a copy of the base model's own head beside an adapter of it.
    if (name.endsWith(".base_layer.weight")) continue;
    const match = /^(.*)\.lora_([AB])(?:\.default)?\.weight$/.exec(name);
    if (match === null)
      throw new TinkerError(`${file} holds ${name}, which is not a LoRA matrix of a linear layer.`);
    const path = match[1]!.startsWith(PREFIX) ? match[1]!.slice(PREFIX.length) : match[1]!;
    // The service's own name of the unembedding.
    const module = /^(?:model\.)?unembed_tokens$/.test(path) ? "lm_head" : path;
    found.set(module, { ...found.get(module), [match[2] === "A" ? "a" : "b"]: name });
  }
  const pairs = new Map<string, LoraPair>();
  for (const [module, { a, b }] of found) {
    if (a === undefined || b === undefined)
      throw new TinkerError(`${file} has only one of the two LoRA matrices of ${module}.`);
    pairs.set(module, { a, b });
  }
  return pairs;
}

/** The names that PEFT gives a module's two tensors. */
export function peftNames(module: string): LoraPair {
  return { a: `${PREFIX}${module}.lora_A.weight`, b: `${PREFIX}${module}.lora_B.weight` };
}

/** The alpha that, over the rank, scales one module: rank-stabilised LoRA and `alpha_pattern` are in it. */
export function moduleAlpha({ alpha, otherSettings = {} }: AdapterSettings, module: string, rank: number) {
  const patterns = (otherSettings["alpha_pattern"] ?? {}) as Record<string, number>;
  // By the end of the module's path, or a pattern for it.
  const exception = Object.entries(patterns).find(([pattern]) =>
    new RegExp(`^(?:.*\\.)?(?:${pattern})$`).test(module),
  );
  const own = exception === undefined ? alpha : exception[1];
  return otherSettings["use_rslora"] === true ? own * Math.sqrt(rank) : own;
}

/** What changes an adapter's output in ways that A, B and alpha do not tell. */
const UNSUPPORTED = [
  "use_dora",
  "bias",
  "lora_bias",
  "fan_in_fan_out",
  "modules_to_save",
  "layer_replication",
  "trainable_token_indices",
  "target_parameters",
  "use_qalora",
  "use_bdlora",
];

/** Throws for an adapter that is more than its low-rank matrices, or uses one of the settings in `alsoRefused`. */
export function checkPlainLora(
  { otherSettings = {} }: AdapterSettings,
  file: string,
  alsoRefused: readonly string[] = [],
): void {
  for (const field of [...UNSUPPORTED, ...alsoRefused]) {
    const value = otherSettings[field];
    if (isUnused(value)) continue;
    throw new TinkerError(`${file}: adapters with ${field} (${JSON.stringify(value)}) are not supported.`);
  }
}

function isUnused(value: unknown): boolean {
  if (typeof value === "object" && value !== null) return Object.keys(value).length === 0;
  return value === undefined || value === null || value === false || value === "none";
}

/** What LoRA adds to one weight matrix: scale * B A. */
export interface LoraDelta {
  /** [rank, inputs] */
  readonly a: FloatTensor;
  /** [outputs, rank] */
  readonly b: FloatTensor;
  readonly scale: number;
}

/** Throws where a delta is not of the shape of the weight it is to be added to. */
export function checkDelta(name: string, shape: readonly number[], { a, b }: LoraDelta): void {
  const [outputs, inputs] = shape;
  const fits =
    shape.length === 2 &&
    a.shape.length === 2 &&
    b.shape.length === 2 &&
    a.shape[1] === inputs &&
    b.shape[0] === outputs &&
    a.shape[0] === b.shape[1];
  if (!fits) {
    throw new TinkerError(
      `The adapter does not fit ${name} of shape [${shape}]: its lora_A has [${a.shape}], its lora_B [${b.shape}].`,
    );
  }
}

/** Adds the delta's rows from `firstRow` on to as many rows of the weight. */
export function addDeltaRows(rows: Float32Array, firstRow: number, { a, b, scale }: LoraDelta): void {
  const [rank, inputs] = a.shape as [number, number];
  const sum = new Float64Array(inputs);
  for (let start = 0, row = firstRow; start < rows.length; start += inputs, row++) {
    sum.fill(0);
    for (let k = 0; k < rank; k++) {
      const factor = b.data[row * rank + k]!;
      const from = k * inputs;
      for (let j = 0; j < inputs; j++) sum[j]! += factor * a.data[from + j]!;
    }
    for (let j = 0; j < inputs; j++) rows[start + j] = rows[start + j]! + scale * sum[j]!;
  }
}
