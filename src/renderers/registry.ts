import { ValidationError } from "../errors.js";
import { DeepSeekV3Renderer } from "./deepseek-v3.js";
import { DeepSeekV41Renderer } from "./deepseek-v4-1.js";
import { Glm53Renderer } from "./glm5-3.js";
import { GptOssRenderer } from "./gpt-oss.js";
import { KimiK2Renderer, KimiK25Renderer } from "./kimi.js";
import { Llama3Renderer } from "./llama3.js";
import { Nemotron3Renderer } from "./nemotron3.js";
import { Qwen3Renderer, Qwen3VlRenderer } from "./qwen3.js";
import { Qwen35Renderer } from "./qwen3-5.js";
import { Qwen38Renderer } from "./qwen3-8.js";
import type { Renderer, RendererTokenizer } from "./renderer.js";
import { RoleColonRenderer } from "./role-colon.js";
import { templateRenderer } from "./template.js";
import { TmlV0Renderer } from "./tml-v0.js";

/** What a renderer may need to know besides its tokenizer. */
export interface RendererOptions {
  /** The clock; a format that names the day takes it once, when its renderer is made. Default: the machine's. */
  readonly now?: (() => Date) | undefined;
  /** How much Inkling (`tml_v0`) thinks, in hundredths from 0 to 0.99. Default: 0.9. */
  readonly effort?: number | undefined;
}

/** Makes a renderer for a tokenizer. */
export type RendererFactory = (tokenizer: RendererTokenizer, options: RendererOptions) => Renderer;

const BUILT_IN: Readonly<Record<string, RendererFactory>> = {
  role_colon: (tokenizer) => new RoleColonRenderer(tokenizer),
  llama3: (tokenizer) => new Llama3Renderer(tokenizer),
  template: (tokenizer) => templateRenderer(tokenizer),
  qwen3: (tokenizer) => new Qwen3Renderer(tokenizer),
  qwen3_disable_thinking: (tokenizer) => new Qwen3Renderer(tokenizer, "disabled"),
  qwen3_instruct: (tokenizer) => new Qwen3Renderer(tokenizer, "unknown"),
  qwen3_vl: (tokenizer) => new Qwen3VlRenderer(tokenizer),
  qwen3_vl_instruct: (tokenizer) => new Qwen3VlRenderer(tokenizer, "unknown"),
  qwen3_5: (tokenizer) => new Qwen35Renderer(tokenizer),
  qwen3_5_disable_thinking: (tokenizer) => new Qwen35Renderer(tokenizer, "disabled"),
  qwen3_5_preserve_thinking: (tokenizer) => new Qwen35Renderer(tokenizer, "preserved"),
  qwen3_8_xhigh_reasoning: (tokenizer) => new Qwen38Renderer(tokenizer, "xhigh"),
  qwen3_8_medium_reasoning: (tokenizer) => new Qwen38Renderer(tokenizer, "medium"),
  qwen3_8_low_reasoning: (tokenizer) => new Qwen38Renderer(tokenizer, "low"),
  qwen3_8_disable_thinking: (tokenizer) => new Qwen38Renderer(tokenizer, "disabled"),
  nemotron3: (tokenizer) => new Nemotron3Renderer(tokenizer),
  nemotron3_disable_thinking: (tokenizer) => new Nemotron3Renderer(tokenizer, { thinking: "disabled" }),
  nemotron3_low_thinking: (tokenizer) => new Nemotron3Renderer(tokenizer, { effort: "low" }),
  nemotron3_preserve_thinking: (tokenizer) => new Nemotron3Renderer(tokenizer, { thinking: "preserved" }),
  nemotron3_ultra: (tokenizer) => new Nemotron3Renderer(tokenizer, { isUltra: true }),
  nemotron3_ultra_disable_thinking: (tokenizer) =>
    new Nemotron3Renderer(tokenizer, { isUltra: true, thinking: "disabled" }),
  nemotron3_ultra_medium_thinking: (tokenizer) =>
    new Nemotron3Renderer(tokenizer, { isUltra: true, effort: "efficient" }),
  nemotron3_ultra_preserve_thinking: (tokenizer) =>
    new Nemotron3Renderer(tokenizer, { isUltra: true, thinking: "preserved" }),
  deepseekv3: (tokenizer) => new DeepSeekV3Renderer(tokenizer, { thinks: false }),
  deepseekv3_disable_thinking: (tokenizer) => new DeepSeekV3Renderer(tokenizer, { thinks: false }),
  deepseekv3_thinking: (tokenizer) => new DeepSeekV3Renderer(tokenizer, { thinks: true }),
  deepseekv4_1: (tokenizer) => new DeepSeekV41Renderer(tokenizer, { effort: 75 }),
  deepseekv4_1_low_reasoning: (tokenizer) => new DeepSeekV41Renderer(tokenizer, { effort: 50 }),
  deepseekv4_1_max_reasoning: (tokenizer) => new DeepSeekV41Renderer(tokenizer, { effort: 100 }),
  deepseekv4_1_disable_thinking: (tokenizer) => new DeepSeekV41Renderer(tokenizer, {}),
  deepseekv4_1_preserve_thinking: (tokenizer) =>
    new DeepSeekV41Renderer(tokenizer, { effort: 75, keepsOldThoughts: true }),
  glm5_3_max_reasoning: (tokenizer) => new Glm53Renderer(tokenizer, { effort: "Max" }),
  glm5_3_high_reasoning: (tokenizer) => new Glm53Renderer(tokenizer, { effort: "High" }),
  glm5_3_low_reasoning: (tokenizer) => new Glm53Renderer(tokenizer, { effort: "Low" }),
  kimi_k2: (tokenizer) => new KimiK2Renderer(tokenizer),
  kimi_k25: (tokenizer) => new KimiK25Renderer(tokenizer),
  kimi_k25_disable_thinking: (tokenizer) => new KimiK25Renderer(tokenizer, "disabled"),
  kimi_k26: (tokenizer) => new KimiK25Renderer(tokenizer),
  kimi_k26_disable_thinking: (tokenizer) => new KimiK25Renderer(tokenizer, "disabled"),
  kimi_k26_preserve_thinking: (tokenizer) => new KimiK25Renderer(tokenizer, "preserved"),
  gpt_oss_no_sysprompt: (tokenizer) => new GptOssRenderer(tokenizer),
  gpt_oss_low_reasoning: (tokenizer, { now }) => new GptOssRenderer(tokenizer, { effort: "low", now }),
  gpt_oss_medium_reasoning: (tokenizer, { now }) => new GptOssRenderer(tokenizer, { effort: "medium", now }),
  gpt_oss_high_reasoning: (tokenizer, { now }) => new GptOssRenderer(tokenizer, { effort: "high", now }),
  tml_v0: (tokenizer, { effort }) => new TmlV0Renderer(tokenizer, { effort }),
};

const registered = new Map<string, RendererFactory>();

/** Adds a renderer of your own under a name, before those that are built in. Returns what takes it away again. */
export function registerRenderer(name: string, factory: RendererFactory): () => void {
  registered.set(name, factory);
  return () => {
    if (registered.get(name) === factory) registered.delete(name);
  };
}

/** The names that `getRenderer` knows. */
export function rendererNames(): readonly string[] {
  return [...registered.keys(), ...Object.keys(BUILT_IN)];
}

/** The renderer of a name, for a model's tokenizer. */
export function getRenderer(
  name: string,
  tokenizer: RendererTokenizer,
  options: RendererOptions = {},
): Renderer {
  const factory = registered.get(name) ?? (Object.hasOwn(BUILT_IN, name) ? BUILT_IN[name] : undefined);
  if (factory === undefined) {
    throw new ValidationError(
      "name",
      `There is no renderer ${JSON.stringify(name)}, only ${rendererNames().join(", ")}.`,
    );
  }
  return factory(tokenizer, options);
}
