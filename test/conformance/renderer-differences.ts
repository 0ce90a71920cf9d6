/** Where our renderers differ from the Python cookbook's on purpose. */
import type { Disagreement, Operation, Outcome } from "./renderer-operations.js";

/** One place where ours and the judge's differ. */
export interface Difference {
  readonly renderer: string;
  readonly operation: Operation;
  readonly kind: Disagreement;
  readonly ours: Outcome;
  readonly theirs: Outcome;
}

/** A difference that is wanted. One that never occurs any more must leave the list. */
export interface AllowedDifference {
  readonly name: string;
  readonly reason: string;
  /** The renderers it occurs in. */
  readonly renderers: RegExp;
  readonly explains: (difference: Difference) => boolean;
}

export const ALLOWED_DIFFERENCES: readonly AllowedDifference[] = [
  {
    name: "streams everywhere",
    reason: "Python streams no answers of these formats; ours streams all",
    renderers: /^(role_colon|llama3|gpt_oss.*|tml_v0)$/,
    explains: ({ operation, kind, theirs }) =>
      operation.operation === "stream" &&
      kind === "only Python refuses" &&
      theirs.error!.startsWith("NotImplementedError"),
  },
  {
    name: "nothing behind a message of the user",
    reason:
      "Python writes the text `<UNUSED>` behind a last message that is not the assistant's, and learns it in some modes",
    renderers: /^role_colon$/,
    explains: ({ operation, kind, ours, theirs }) =>
      kind === "results differ" &&
      "messages" in operation &&
      operation.messages.at(-1)?.role !== "assistant" &&
      JSON.stringify(
        sequences(theirs.ok).map((tokens, index) => tokens.slice(0, sequences(ours.ok)[index]?.length)),
      ) === JSON.stringify(sequences(ours.ok)),
  },
];

/** The tokens of an example or of several. */
function sequences(result: unknown): readonly (readonly number[])[] {
  const examples: readonly { readonly tokens: readonly number[] }[] = Array.isArray(result)
    ? result
    : [result];
  return examples.map(({ tokens }) => tokens);
}
