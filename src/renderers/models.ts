const ROLE_COLON = ["role_colon"];
const LLAMA3 = ["llama3"];
const QWEN3 = ["qwen3", "qwen3_disable_thinking"];
const QWEN3_INSTRUCT = ["qwen3_instruct"];
const QWEN3_VL_INSTRUCT = ["qwen3_vl_instruct"];
const QWEN3_5 = ["qwen3_5", "qwen3_5_disable_thinking", "qwen3_5_preserve_thinking"];
const QWEN3_8 = [
  "qwen3_8_xhigh_reasoning",
  "qwen3_8_disable_thinking",
  "qwen3_8_medium_reasoning",
  "qwen3_8_low_reasoning",
];
const DEEPSEEK_V3 = ["deepseekv3", "deepseekv3_thinking"];
const DEEPSEEK_V4_1 = [
  "deepseekv4_1",
  "deepseekv4_1_low_reasoning",
  "deepseekv4_1_max_reasoning",
  "deepseekv4_1_disable_thinking",
  "deepseekv4_1_preserve_thinking",
];
const GPT_OSS = [
  "gpt_oss_medium_reasoning",
  "gpt_oss_low_reasoning",
  "gpt_oss_high_reasoning",
  "gpt_oss_no_sysprompt",
];
const GLM5_3 = ["glm5_3_max_reasoning", "glm5_3_low_reasoning", "glm5_3_high_reasoning"];
const NEMOTRON3 = ["nemotron3", "nemotron3_disable_thinking", "nemotron3_preserve_thinking"];
const NEMOTRON3_ULTRA = [
  "nemotron3_ultra",
  "nemotron3_ultra_disable_thinking",
  "nemotron3_ultra_medium_thinking",
  "nemotron3_ultra_preserve_thinking",
];
const TML_V0 = ["tml_v0"];

/** By organization and model, the best first. */
const RENDERERS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  tinkerts: { nano: QWEN3_INSTRUCT },
  "meta-llama": {
    "Llama-3.1-8B-Instruct": LLAMA3,
    "Llama-3.2-1B": ROLE_COLON,
    "Llama-3.2-3B": ROLE_COLON,
    "Llama-3.1-8B": ROLE_COLON,
    "Llama-3.1-70B": ROLE_COLON,
    "Llama-3.3-70B-Instruct": LLAMA3,
  },
  Qwen: {
    "Qwen3-VL-30B-A3B-Instruct": QWEN3_VL_INSTRUCT,
    "Qwen3-VL-235B-A22B-Instruct": QWEN3_VL_INSTRUCT,
    "Qwen3-8B-Base": ROLE_COLON,
    "Qwen3-30B-A3B-Base": ROLE_COLON,
    "Qwen3-8B": QWEN3,
    "Qwen3-32B": QWEN3,
    "Qwen3-30B-A3B": QWEN3,
    "Qwen3-4B-Instruct-2507": QWEN3_INSTRUCT,
    "Qwen3-30B-A3B-Instruct-2507": QWEN3_INSTRUCT,
    "Qwen3-235B-A22B-Instruct-2507": QWEN3_INSTRUCT,
    "Qwen3.5-4B": QWEN3_5,
    "Qwen3.5-9B": QWEN3_5,
    "Qwen3.5-9B-Base": ROLE_COLON,
    "Qwen3.5-27B": QWEN3_5,
    "Qwen3.5-35B-A3B": QWEN3_5,
    "Qwen3.5-35B-A3B-Base": ROLE_COLON,
    "Qwen3.5-397B-A17B": QWEN3_5,
    "Qwen3.6-27B": QWEN3_5,
    "Qwen3.6-35B-A3B": QWEN3_5,
    "Qwen3.8-27B": QWEN3_8,
  },
  "deepseek-ai": {
    "DeepSeek-V3.1": DEEPSEEK_V3,
    "DeepSeek-V3.1-Base": ROLE_COLON,
    "DeepSeek-V4.1-Flash": DEEPSEEK_V4_1,
    "DeepSeek-V4.1-Flash-1017": DEEPSEEK_V4_1,
  },
  openai: { "gpt-oss-20b": GPT_OSS, "gpt-oss-120b": GPT_OSS },
  moonshotai: {
    "Kimi-K2-Thinking": ["kimi_k2"],
    "Kimi-K2.5": ["kimi_k25", "kimi_k25_disable_thinking"],
    "Kimi-K2.6": ["kimi_k26", "kimi_k26_disable_thinking", "kimi_k26_preserve_thinking"],
  },
  "zai-org": { "GLM-5.3": GLM5_3, "GLM-5.3-Flash": GLM5_3 },
  nvidia: {
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": NEMOTRON3,
    "NVIDIA-Nemotron-3-Super-120B-A12B-BF16": [...NEMOTRON3, "nemotron3_low_thinking"],
    "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": NEMOTRON3_ULTRA,
    "NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": NEMOTRON3_ULTRA.filter(
      (name) => name !== "nemotron3_ultra_medium_thinking",
    ),
    "NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16": NEMOTRON3_ULTRA,
  },
  thinkingmachines: { Inkling: TML_V0, "Inkling-Small": TML_V0 },
};

/** Names of the renderers that fit a model, the best first; undefined for a model without any. A `:` and what follows it are ignored. */
export function knownRenderers(model: string): readonly string[] | undefined {
  const { organization, name } = partsOf(model);
  const models = Object.hasOwn(RENDERERS, organization) ? RENDERERS[organization]! : {};
  if (Object.hasOwn(models, name)) return models[name];
  // Every Inkling model has the same format, also those newer than this table.
  return organization === "thinkingmachines" && name.startsWith("Inkling") ? TML_V0 : undefined;
}

/** Names of all models whose renderers are known. */
export function knownModels(): readonly string[] {
  return Object.entries(RENDERERS).flatMap(([organization, models]) =>
    Object.keys(models).map((name) => `${organization}/${name}`),
  );
}

function partsOf(model: string): { readonly organization: string; readonly name: string } {
  const [organization = "", ...rest] = model.split(":", 1)[0]!.split("/");
  return { organization, name: rest.join("/") };
}
