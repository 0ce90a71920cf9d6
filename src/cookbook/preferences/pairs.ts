import type { Renderer, SupervisedExample } from "../../renderers/index.js";
import { Datum } from "../../wire/index.js";
import { datumFromExample, toExamples } from "../data/index.js";
import type { Rendering } from "../supervised/prepare-run.js";
import type { RenderedRow } from "../supervised/training-data.js";
import { type LabeledComparison, swapComparison } from "./comparison.js";

/** What a tie says of its first answer: as good as the other one. */
const EVEN = Float32Array.of(0.5);

/** A comparison as the two datums of `dpoLoss`, the better answer first; none where there is nothing to tell apart. */
export function pairData(
  comparison: LabeledComparison,
  renderer: Renderer,
  { maxLength }: { readonly maxLength?: number | undefined } = {},
): readonly Datum[] {
  return renderPair(comparison, { renderer, maxLength }).data;
}

/** The same, with what a run counts. */
export function renderPair(comparison: LabeledComparison, { renderer, maxLength }: Rendering): RenderedRow {
  const { completionA, completionB, label, ...others } =
    comparison.label === "B" ? swapComparison(comparison) : comparison;
  const examples = [completionA, completionB].map((completion) =>
    answerExample({ ...others, completion }, renderer),
  );
  const isCut = maxLength !== undefined && examples.some(({ input }) => input.length > maxLength);
  const hadAnswer = JSON.stringify(completionA) !== JSON.stringify(completionB);
  const [chosen, rejected] = examples.map((example) => datumFromExample(example, { maxLength }));
  if (!hadAnswer || chosen === undefined || rejected === undefined) return { data: [], isCut, hadAnswer };
  const { modelInput, lossFnInputs } = chosen;
  const first =
    label === "Tie" ? new Datum({ modelInput, lossFnInputs: { ...lossFnInputs, preference: EVEN } }) : chosen;
  return { data: [first, rejected], isCut, hadAnswer };
}

/** An answer of several messages is learnt as a whole where the format lets it be one sequence, else its last message. */
function answerExample(
  {
    prompt,
    completion,
    tools,
  }: Pick<LabeledComparison, "prompt" | "tools"> & { completion: LabeledComparison["completionA"] },
  renderer: Renderer,
): SupervisedExample {
  const isOneSequence = completion.length > 1 && renderer.hasExtensionProperty;
  const trainOn = isOneSequence ? "last_assistant_turn" : "last_assistant_message";
  return toExamples({ messages: [...prompt, ...completion], tools }, renderer, trainOn).at(-1)!;
}
