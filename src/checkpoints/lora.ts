import { TinkerError } from "../errors.js";

/** Settings of an adapter, from adapter_config.json. */
export interface AdapterSettings {
  /** Hugging Face name or folder of the model the adapter belongs to. */
  baseModel: string | null;
  rank: number;
  /** Scale of the adapter's output, times the rank: alpha / rank. */
  alpha: number;
  /** Names of the modules that have LoRA matrices, or a pattern. */
  targetModules: readonly string[] | string;
  /** Every other entry of adapter_config.json, with its name there. */
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
    // PEFT stores a copy of the base model's own head beside an adapter for it.
    if (name.endsWith(".base_layer.weight")) continue;
    const match = /^(.*)\.lora_([AB])(?:\.default)?\.weight$/.exec(name);
    if (match === null)
      throw new TinkerError(`${file} holds ${name}, which is not a LoRA matrix of a linear layer.`);
    const path = match[1]!.startsWith(PREFIX) ? match[1]!.slice(PREFIX.length) : match[1]!;
    // The service's name for the unembedding.
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

/** The module of a tensor that has the name that PEFT gives it. */
export function moduleOfTensor(name: string): string {
  const path = name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name;
  return path.replace(/\.lora_[AB]\.weight$/, "");
}

/** The alpha of one module, with rank-stabilised LoRA and `alpha_pattern` applied. */
export function moduleAlpha(settings: AdapterSettings, module: string, rank: number): number {
  const own = exceptionFor(settings, "alpha_pattern", module) ?? settings.alpha;
  return settings.otherSettings?.["use_rslora"] === true ? own * Math.sqrt(rank) : own;
}

/** The factor of a module's B A. */
export function loraScale(settings: AdapterSettings, module: string): number {
  const rank = moduleRank(settings, module);
  return moduleAlpha(settings, module, rank) / rank;
}

/** The rank of one module, with `rank_pattern` applied. */
export function moduleRank(settings: AdapterSettings, module: string): number {
  return exceptionFor(settings, "rank_pattern", module) ?? settings.rank;
}

function exceptionFor(
  { otherSettings = {} }: AdapterSettings,
  field: "alpha_pattern" | "rank_pattern",
  module: string,
): number | undefined {
  const patterns = (otherSettings[field] ?? {}) as Record<string, number>;
  // A key matches the end of the module's path, or is a pattern for it.
  const found = Object.entries(patterns).find(([pattern]) =>
    new RegExp(`^(?:.*\\.)?(?:${pattern})$`).test(module),
  );
  return found?.[1];
}

/** PEFT settings that change an adapter's output besides A, B and alpha. */
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

/** Throws for an adapter with more than low-rank matrices, or with one of the settings in `alsoRefused`. */
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
