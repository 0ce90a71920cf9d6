/** Where our renderers differ from the Python cookbook's on purpose. */
import { isDeepStrictEqual } from "node:util";
import type { RendererTokenizer } from "../../src/renderers/index.js";
import { DEEPSEEK_DIFFERENCES } from "./renderer-differences-deepseek.js";
import { KIMI_DIFFERENCES } from "./renderer-differences-kimi.js";
import { QWEN_DIFFERENCES } from "./renderer-differences-qwen.js";
import type { Disagreement, Operation, Outcome } from "./renderer-operations.js";

/** One place where ours and the judge's differ. */
export interface Difference {
  readonly renderer: string;
  readonly tokenizer: RendererTokenizer;
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
  {
    name: "answers that end twice",
    reason: "Python refuses to read them; ours says that they are malformed",
    renderers: /./,
    explains: ({ kind, ours, theirs }) =>
      kind === "only Python refuses" &&
      theirs.error!.includes("expected to split into 1 or 2 pieces") &&
      JSON.stringify(ours.ok).includes('"malformed"'),
  },
  {
    name: "no messages, no examples",
    reason: "Python looks for the last message of none, or takes none for messages of another kind",
    renderers: /./,
    explains: ({ operation, kind }) =>
      kind === "only Python refuses" &&
      operation.operation === "examples" &&
      operation.messages.length === 0 &&
      operation.tools === undefined,
  },
  {
    name: "what a prompt with images supplies is not learnt either",
    reason:
      "Python looks where the prompt ends in texts alone, so that with an image before it an answer learns the block of thoughts that its prompt opens, or thoughts behind a prompt that forbids them",
    renderers: /^(qwen3_[58]|kimi_k2[56])/,
    explains: ({ operation, kind, ours, theirs }) => {
      if (!JSON.stringify("messages" in operation && operation.messages).includes("data:image")) return false;
      if (kind === "only we refuse") return ours.error!.includes("tells the model not to think");
      if (kind !== "results differ") return false;
      const [own, python] = [examplesOf(ours.ok), examplesOf(theirs.ok)];
      return own.every(({ tokens, weights = [] }, index) => {
        const other = python[index];
        const first = weights.indexOf(1);
        return (
          other !== undefined &&
          isDeepStrictEqual(tokens, other.tokens) &&
          isDeepStrictEqual(weights.slice(first), other.weights?.slice(first))
        );
      });
    },
  },
  ...DEEPSEEK_DIFFERENCES,
  ...KIMI_DIFFERENCES,
  ...QWEN_DIFFERENCES,
];

interface Sequence {
  readonly tokens: readonly number[];
  readonly weights?: readonly number[];
}

/** A prompt, an example or several as a list. */
export function examplesOf(result: unknown): readonly Sequence[] {
  if (!Array.isArray(result)) return [result as Sequence];
  return typeof result[0] === "number" ? [{ tokens: result }] : result;
}

function sequences(result: unknown): readonly (readonly number[])[] {
  return examplesOf(result).map(({ tokens }) => tokens);
}
