import type { Message, ToolDeclaration } from "../../renderers/index.js";

/** Two answers to one prompt. */
export interface Comparison {
  /** Conversation that both completions answer. */
  readonly prompt: readonly Message[];
  /** The answer: usually one message; several if tools are called. */
  readonly completionA: readonly Message[];
  readonly completionB: readonly Message[];
  readonly tools?: readonly ToolDeclaration[] | undefined;
}

/** Label of the better answer. */
export type PreferenceLabel = "A" | "B" | "Tie";

/** Two answers, and which of them is better. */
export interface LabeledComparison extends Comparison {
  readonly label: PreferenceLabel;
}

const SWAPPED = { A: "B", B: "A", Tie: "Tie" } as const;

/** Swaps the two answers of a comparison. */
export function swapComparison<C extends Comparison & { readonly label?: PreferenceLabel | undefined }>(
  comparison: C,
): C {
  const { completionA, completionB, label } = comparison;
  return {
    ...comparison,
    completionA: completionB,
    completionB: completionA,
    ...(label !== undefined && { label: SWAPPED[label] }),
  };
}
