/**
 * How a renderer treats thoughts. `enabled`: the model thinks before it answers, and older turns lose their thoughts.
 * `preserved`: the model thinks, and older turns keep their thoughts. `disabled`: the prompt tells the model not to
 * think. `absent`: the format has no thoughts.
 */
export type Thinking = "enabled" | "preserved" | "disabled" | "absent";

/** The scale of `ReasoningEffort`, from the least to the most. */
export const REASONING_EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

/** How much a model is asked to think before it answers, in OpenAI's words; families translate it into their own. */
export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

/** Settings in which the renderers of a family differ. */
export interface ThinkingMode {
  readonly thinking?: Thinking | undefined;
  /** Reasoning effort; if absent, the prompt does not mention one. */
  readonly effort?: ReasoningEffort | undefined;
  /** Writes as the Python cookbook 0.5.8 does where that differs from the model's chat template. Default: false. */
  readonly isCookbook?: boolean | undefined;
}
