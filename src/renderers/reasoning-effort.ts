import { knownRenderers } from "./models.js";
import { type RendererOptions, rendererNames } from "./registry.js";

/** From the least to the most, as OpenAI names them. */
export const REASONING_EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

/** How much a model is asked to think before it answers. */
export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

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

const EFFORT_IN_NAME = /_(low|medium|high|xhigh|max)_(?:reasoning|thinking)$/;
const NEVER_THINKS = /_instruct$|^llama3$|^role_colon$/;
const GPT_OSS = "gpt_oss_";

/**
 * The renderer of a model's family that asks for as much thinking, or for the next above it; undefined where the family
 * has no choice of the kind.
 */
export function rendererWithEffort(
  model: string,
  effort: ReasoningEffort,
): { readonly name: string; readonly options: RendererOptions } | undefined {
  const known = knownRenderers(model) ?? [];
  const [best] = known;
  if (best === "tml_v0") return { name: best, options: { effort: INKLING[effort] } };
  if (best !== undefined && effort === "none" && NEVER_THINKS.test(best)) return { name: best, options: {} };
  const name = nameWithEffort(
    // The table names one effort of these only.
    best?.startsWith(GPT_OSS) ? rendererNames().filter((each) => each.startsWith(GPT_OSS)) : known,
    effort,
  );
  return name === undefined ? undefined : { name, options: {} };
}

/** Of a family's renderers, the one that thinks as much as asked for, or the next one above it. */
export function nameWithEffort(
  names: readonly string[],
  wished: ReasoningEffort | "thinking",
): string | undefined {
  if (wished === "none")
    return names.find((name) => name.endsWith("_disable_thinking") || isQuiet(name, names));
  const thinking = names.filter(
    (name) => !/_(?:disable|preserve)_thinking$/.test(name) && !isQuiet(name, names),
  );
  const hasModes = names.length > 1;
  if (!hasModes) return undefined;
  if (wished === "thinking") return thinking[0];
  const order = (name: string) =>
    REASONING_EFFORTS.indexOf((EFFORT_IN_NAME.exec(name)?.[1] ?? "high") as ReasoningEffort);
  const rising = thinking.toSorted((one, other) => order(one) - order(other));
  return rising.find((name) => order(name) >= REASONING_EFFORTS.indexOf(wished)) ?? rising.at(-1);
}

/** Where a family names the renderer that thinks, the plain one does not. */
function isQuiet(name: string, names: readonly string[]): boolean {
  return names.includes(`${name}_thinking`);
}
