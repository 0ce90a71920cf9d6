import type { Message, ToolDeclaration } from "../../renderers/index.js";

/** Two answers to one prompt. */
export interface Comparison {
  /** What is answered. */
  readonly prompt: readonly Message[];
  /** Usually one message; several where tools are called. */
  readonly completionA: readonly Message[];
  readonly completionB: readonly Message[];
  readonly tools?: readonly ToolDeclaration[] | undefined;
}

/** Which answer is better. */
export type PreferenceLabel = "A" | "B" | "Tie";

/** Two answers, and which of them is better. */
export interface LabeledComparison extends Comparison {
  readonly label: PreferenceLabel;
}

const SWAPPED = { A: "B", B: "A", Tie: "Tie" } as const;

/** The same comparison with its answers the other way round. */
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
