import { knownRenderers } from "./models.js";
import { type RendererOptions, rendererNames } from "./registry.js";

const LEVELS = ["minimal", "low", "medium", "high", "xhigh", "max"] as const;

/** How much a model is to think before it answers. */
export type ReasoningEffort = "none" | (typeof LEVELS)[number];

/** All that there are, the least first. */
export const REASONING_EFFORTS: readonly ReasoningEffort[] = ["none", ...LEVELS];

/** Inkling is told a number. */
const INKLING: Readonly<Record<ReasoningEffort, number>> = {
  none: 0,
  minimal: 0.2,
  low: 0.4,
  medium: 0.6,
  high: 0.9,
  xhigh: 0.95,
  max: 0.99,
};

const LEVEL = new RegExp(`_(${LEVELS.join("|")})_(?:reasoning|thinking)$`);
const NEVER_THINKS = /_instruct$|^llama3$|^role_colon$|^deepseekv3$|_disable_thinking$/;
const GPT_OSS = "gpt_oss_";

/**
 * The renderer of a model's family that asks for as much thinking, or for the nearest that there is; undefined where the
 * family has no choice of the kind: it always thinks, or never.
 */
export function rendererWithEffort(
  model: string,
  effort: ReasoningEffort,
): { readonly name: string; readonly options: RendererOptions } | undefined {
  const known = knownRenderers(model)?.filter((name) => !name.endsWith("_preserve_thinking")) ?? [];
  if (known[0] === "tml_v0") return { name: known[0], options: { effort: INKLING[effort] } };
  const names = known[0]?.startsWith(GPT_OSS)
    ? rendererNames().filter((name) => name.startsWith(GPT_OSS) && LEVEL.test(name))
    : known;
  const fitting = names.filter((name) => NEVER_THINKS.test(name) === (effort === "none"));
  const name = effort === "none" ? fitting[0] : nearest(fitting, effort);
  return name === undefined ? undefined : { name, options: {} };
}

/** A renderer without a level in its name thinks as much as the model is used to, which counts as high. */
function nearest(names: readonly string[], effort: Exclude<ReasoningEffort, "none">): string | undefined {
  const distance = (name: string) => {
    const level = (LEVEL.exec(name)?.[1] ?? "high") as typeof effort;
    return Math.abs(LEVELS.indexOf(level) - LEVELS.indexOf(effort));
  };
  return names.toSorted((a, b) => distance(a) - distance(b))[0];
}
