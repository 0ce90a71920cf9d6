import { TinkerError, ValidationError } from "../errors.js";
import { closestName } from "../wire/fields/describe.js";
import * as f from "../wire/fields/index.js";
import { DeepSeekV3Renderer } from "./deepseek-v3.js";
import { DeepSeekV41Renderer } from "./deepseek-v4-1.js";
import { Glm53Renderer } from "./glm5-3.js";
import { GptOssRenderer } from "./gpt-oss.js";
import { KimiK2Renderer, KimiK25Renderer } from "./kimi.js";
import { Llama3Renderer } from "./llama3.js";
import { knownRenderers } from "./models.js";
import { Nemotron3Renderer } from "./nemotron3.js";
import { Qwen3Renderer, Qwen3VlRenderer } from "./qwen3.js";
import { Qwen35Renderer } from "./qwen3-5.js";
import { Qwen38Renderer } from "./qwen3-8.js";
import type { Renderer, RendererTokenizer } from "./renderer.js";
import { RoleColonRenderer } from "./role-colon.js";
import { templateRenderer } from "./template.js";
import { REASONING_EFFORTS, type ReasoningEffort, type Thinking, type ThinkingMode } from "./thinking.js";
import { TmlV0Renderer } from "./tml-v0.js";

/** Options of a renderer, without its tokenizer. */
export interface RendererOptions {
  /** The clock; a format that names the day takes it once, when its renderer is made. Default: the machine's. */
  readonly now?: (() => Date) | undefined;
  /** How much Inkling (`tml_v0`) thinks; also in hundredths, from 0 to 0.99. Default: `"high"`, which is 0.9. */
  readonly effort?: ReasoningEffort | number | undefined;
}

const RENDERER_OPTIONS = f.optionTable({
  now: f.optional(f.functionOf<() => Date>()),
  effort: f.optional(
    f.value<ReasoningEffort | number>(
      `one of ${REASONING_EFFORTS.join(", ")}, or hundredths from 0 to 0.99`,
      (given) =>
        typeof given === "number"
          ? given >= 0 && given < 1 && Number(given.toFixed(2)) === given
          : REASONING_EFFORTS.includes(given as ReasoningEffort),
    ),
  ),
} satisfies f.FieldsOf<RendererOptions>);

/** Makes a renderer for a tokenizer. */
export type RendererFactory = (tokenizer: RendererTokenizer, options: RendererOptions) => Renderer;

/** A built-in renderer, and how it treats thoughts. */
interface BuiltIn extends ThinkingMode {
  readonly make: (...given: [...Parameters<RendererFactory>, isCookbook: boolean]) => Renderer;
}

type RendererClass = new (
  tokenizer: RendererTokenizer,
  options: ThinkingMode & Pick<RendererOptions, "now">,
) => Renderer;

/** Suffix for the renderer as the Python cookbook 0.5.8 has it, to continue what was trained with it. */
const COOKBOOK = "_cookbook";

function builtIn(Family: RendererClass, thinking: Thinking, effort?: ReasoningEffort): BuiltIn {
  const make: BuiltIn["make"] = (tokenizer, { now }, isCookbook) =>
    new Family(tokenizer, { thinking, effort, isCookbook, now });
  return { make, thinking, effort };
}

class NemotronUltra extends Nemotron3Renderer {
  constructor(tokenizer: RendererTokenizer, mode: ThinkingMode) {
    super(tokenizer, { ...mode, isUltra: true });
  }
}

const BUILT_IN: Readonly<Record<string, BuiltIn>> = {
  role_colon: builtIn(RoleColonRenderer, "absent"),
  llama3: builtIn(Llama3Renderer, "absent"),
  template: { make: (tokenizer, { now }) => templateRenderer(tokenizer, { now }) },
  qwen3: builtIn(Qwen3Renderer, "enabled"),
  qwen3_disable_thinking: builtIn(Qwen3Renderer, "disabled"),
  qwen3_instruct: builtIn(Qwen3Renderer, "absent"),
  qwen3_vl: builtIn(Qwen3VlRenderer, "enabled"),
  qwen3_vl_instruct: builtIn(Qwen3VlRenderer, "absent"),
  qwen3_5: builtIn(Qwen35Renderer, "enabled"),
  qwen3_5_disable_thinking: builtIn(Qwen35Renderer, "disabled"),
  qwen3_5_preserve_thinking: builtIn(Qwen35Renderer, "preserved"),
  qwen3_8_xhigh_reasoning: builtIn(Qwen38Renderer, "preserved", "xhigh"),
  qwen3_8_medium_reasoning: builtIn(Qwen38Renderer, "preserved", "medium"),
  qwen3_8_low_reasoning: builtIn(Qwen38Renderer, "preserved", "low"),
  qwen3_8_disable_thinking: builtIn(Qwen38Renderer, "disabled"),
  nemotron3: builtIn(Nemotron3Renderer, "enabled"),
  nemotron3_disable_thinking: builtIn(Nemotron3Renderer, "disabled"),
  nemotron3_low_thinking: builtIn(Nemotron3Renderer, "enabled", "low"),
  nemotron3_preserve_thinking: builtIn(Nemotron3Renderer, "preserved"),
  nemotron3_ultra: builtIn(NemotronUltra, "enabled"),
  nemotron3_ultra_disable_thinking: builtIn(NemotronUltra, "disabled"),
  nemotron3_ultra_medium_thinking: builtIn(NemotronUltra, "enabled", "medium"),
  nemotron3_ultra_preserve_thinking: builtIn(NemotronUltra, "preserved"),
  deepseekv3: builtIn(DeepSeekV3Renderer, "disabled"),
  deepseekv3_disable_thinking: builtIn(DeepSeekV3Renderer, "disabled"),
  deepseekv3_thinking: builtIn(DeepSeekV3Renderer, "enabled"),
  deepseekv4_1: builtIn(DeepSeekV41Renderer, "enabled", "high"),
  deepseekv4_1_low_reasoning: builtIn(DeepSeekV41Renderer, "enabled", "low"),
  deepseekv4_1_max_reasoning: builtIn(DeepSeekV41Renderer, "enabled", "max"),
  deepseekv4_1_disable_thinking: builtIn(DeepSeekV41Renderer, "disabled"),
  deepseekv4_1_preserve_thinking: builtIn(DeepSeekV41Renderer, "preserved", "high"),
  glm5_3_max_reasoning: builtIn(Glm53Renderer, "preserved", "max"),
  glm5_3_high_reasoning: builtIn(Glm53Renderer, "preserved", "high"),
  glm5_3_low_reasoning: builtIn(Glm53Renderer, "preserved", "low"),
  kimi_k2: builtIn(KimiK2Renderer, "enabled"),
  kimi_k25: builtIn(KimiK25Renderer, "enabled"),
  kimi_k25_disable_thinking: builtIn(KimiK25Renderer, "disabled"),
  kimi_k26: builtIn(KimiK25Renderer, "enabled"),
  kimi_k26_disable_thinking: builtIn(KimiK25Renderer, "disabled"),
  kimi_k26_preserve_thinking: builtIn(KimiK25Renderer, "preserved"),
  gpt_oss_no_sysprompt: builtIn(GptOssRenderer, "enabled"),
  gpt_oss_low_reasoning: builtIn(GptOssRenderer, "enabled", "low"),
  gpt_oss_medium_reasoning: builtIn(GptOssRenderer, "enabled", "medium"),
  gpt_oss_high_reasoning: builtIn(GptOssRenderer, "enabled", "high"),
  tml_v0: {
    make: (tokenizer, { effort }) => new TmlV0Renderer(tokenizer, { effort }),
    thinking: "preserved",
  },
};

/** A tokenizer that says whether it comes with a chat template. */
export type FormatTokenizer = RendererTokenizer & { readonly hasChatTemplate?: boolean };

const registered = new Map<string, RendererFactory>();

/** Registers your own renderer under a name, before the built-in ones. Returns a function that removes it. */
export function registerRenderer(name: string, factory: RendererFactory): () => void {
  registered.set(name, factory);
  return () => {
    if (registered.get(name) === factory) registered.delete(name);
  };
}

/** Names of renderers: all that `getRenderer` knows, or those that fit a model, the best first. */
export function rendererNames(model?: string): readonly string[] {
  if (model !== undefined) return knownRenderers(model) ?? [];
  return [...registered.keys(), ...Object.keys(BUILT_IN)];
}

/**
 * The renderer of a name, or the one that fits a base model: the best of its table, or else the chat template of its
 * tokenizer. Weights at a `tinker://` path have the renderer of their base model.
 */
export function getRenderer(
  of: string | { readonly model: string },
  tokenizer: FormatTokenizer,
  given: RendererOptions = {},
): Renderer {
  const options = RENDERER_OPTIONS.check(given, "getRenderer");
  const name = typeof of === "string" ? of : usualRenderer(of.model, tokenizer);
  const factory = registered.get(name);
  if (factory !== undefined) return factory(tokenizer, options);
  const builtIn = builtInOf(name);
  if (builtIn === undefined) {
    const meant = closestName(name, rendererNames());
    const advice = meant === undefined ? `one of ${rendererNames().join(", ")}` : `did you mean ${meant}?`;
    throw new ValidationError("name", `There is no renderer ${JSON.stringify(name)}: ${advice}`);
  }
  return builtIn.make(tokenizer, options, name.endsWith(COOKBOOK));
}

/** The name of the renderer that fits a model: the recommended one, else its own chat template. */
export function usualRenderer(model: string, { hasChatTemplate }: FormatTokenizer): string {
  const names = rendererNames();
  const recommended = knownRenderers(model);
  const best = recommended?.find((candidate) => names.includes(candidate));
  if (best !== undefined) return best;
  if (hasChatTemplate) return "template";
  throw new TinkerError(
    `${model} has no chat format: it is in no table of renderers, and its tokenizer has no chat template. ` +
      `Name a renderer (role_colon suits base models), one of ${names.join(", ")}.`,
  );
}

/** How a built-in renderer treats thoughts; undefined for your own renderers. */
export function thinkingModeOf(name: string): ThinkingMode {
  return builtInOf(name) ?? {};
}

function builtInOf(name: string): BuiltIn | undefined {
  const own = name.endsWith(COOKBOOK) ? name.slice(0, -COOKBOOK.length) : name;
  return Object.hasOwn(BUILT_IN, own) ? BUILT_IN[own] : undefined;
}
