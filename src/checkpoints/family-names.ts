/** How a model's files arrange the weights of its experts. */
export type ExpertLayout =
  /** A matrix for each expert: `experts.7.gate_proj.weight`. */
  | "separate"
  /** One tensor for all experts, gate and up in turns: `experts.gate_up_proj` of gpt-oss. */
  | "interleaved"
  /** One tensor for all experts, gate before up: `experts.gate_up_proj` of Qwen3.5. */
  | "concatenated";

/** How the weights of a model family are named in its files, as opposed to its adapters. */
export interface FamilyNames {
  /** `gpt_oss`, `qwen3_5` and so on; `default` for models that name their weights as adapters do. */
  readonly family: "default" | "deepseek_v3" | "gpt_oss" | "kimi_k25" | "nemotron_h" | "qwen3_5";
  readonly expertLayout: ExpertLayout;
  /** Which projections an adapter's `w1`, `w2` and `w3` change. */
  readonly experts: Readonly<Record<string, string>>;
  /** Matrices that adapters change part by part: the parts are rows of the whole, in this order. */
  readonly fused: Readonly<Record<string, readonly string[]>>;
  /** The path of a module in the files, from its path in an adapter. */
  moduleOf(path: string): string;
  /** The path of a module in vLLM and SGLang, which rename some modules when they load a model. */
  servedModuleOf(path: string): string;
}

const EXPERTS = { w1: "gate_proj", w2: "down_proj", w3: "up_proj" };
const HEAD_NAMES = ["lm_head", "model.lm_head", "unembed_tokens", "model.unembed_tokens"];

/** Recognizes a model's family by its config, and its layout by the names of its weights. */
export function familyNames(
  config: Readonly<Record<string, unknown>>,
  weights: Iterable<string>,
): FamilyNames {
  const names = [...weights];
  const hasFusedExperts = names.some((name) => name.endsWith(".experts.gate_up_proj"));
  const hasInnerPrefix = names.some((name) => name.startsWith("model.language_model."));
  const { model_type: type, architectures } = config;
  const isArchitecture = (part: string) =>
    Array.isArray(architectures) && architectures.some((name) => String(name).includes(part));
  const moduleOf = renamer({ text: hasInnerPrefix ? "model.language_model." : "model." });
  const common = {
    expertLayout: hasFusedExperts ? ("concatenated" as const) : ("separate" as const),
    experts: EXPERTS,
    fused: {},
    moduleOf,
    servedModuleOf: moduleOf,
  };
  if (isArchitecture("GptOss")) {
    const renamed = (path: string) => moduleOf(path.replace(".attn.", ".self_attn."));
    const expertLayout = hasFusedExperts ? "interleaved" : "separate";
    return { ...common, family: "gpt_oss", expertLayout, moduleOf: renamed, servedModuleOf: renamed };
  }
  if (type === "deepseek_v3") return { ...common, family: "deepseek_v3", expertLayout: "separate" };
  if (isArchitecture("NemotronH")) {
    return {
      family: "nemotron_h",
      expertLayout: "separate",
      // These experts have no gate; its place in the adapter is empty.
      experts: { w1: "up_proj", w2: "down_proj" },
      fused: { in_proj: ["gate_proj", "x_proj"] },
      moduleOf: renamer({ text: "backbone." }),
      servedModuleOf: renamer({ text: "model." }),
    };
  }
  if (type === "qwen3_5" || type === "qwen3_5_moe") {
    return { ...common, family: "qwen3_5", fused: { in_proj_qkv: ["in_proj_q", "in_proj_k", "in_proj_v"] } };
  }
  if (type === "kimi_k25") {
    return {
      ...common,
      family: "kimi_k25",
      expertLayout: "separate",
      moduleOf: renamer({ text: "language_model.model.", head: "language_model.lm_head" }),
      servedModuleOf: renamer({ text: "model." }),
    };
  }
  return { ...common, family: "default" };
}

function renamer({ text, head = "lm_head" }: { text: string; head?: string }): (path: string) => string {
  return (path) => {
    if (HEAD_NAMES.includes(path)) return head;
    return path.startsWith("model.") && !path.startsWith(text) ? text + path.slice("model.".length) : path;
  };
}

/** An adapter's module of all experts of a layer: `model.layers.0.mlp.experts`, `w1`. */
export function expertModule(path: string): { experts: string; projection: string } | undefined {
  const match = /^(.*\.experts)\.(w[123])$/.exec(path);
  return match === null ? undefined : { experts: match[1]!, projection: match[2]! };
}

/** The whole matrix that a module is part of, and the modules whose rows come before it. */
export function fusedPart(
  path: string,
  { fused }: FamilyNames,
): { whole: string; before: readonly string[] } | undefined {
  const at = path.lastIndexOf(".") + 1;
  for (const [whole, parts] of Object.entries(fused)) {
    const index = parts.indexOf(path.slice(at));
    if (index < 0) continue;
    const prefix = path.slice(0, at);
    return { whole: prefix + whole, before: parts.slice(0, index).map((part) => prefix + part) };
  }
  return undefined;
}
