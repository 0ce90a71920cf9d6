import type { Renderer, SupervisedExample } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import { Datum } from "../../wire/index.js";
import { DATUM_OPTIONS, type DatumOptions, datumFromExample, toExamples } from "../data/examples.js";
import type { Rendering } from "../supervised/prepare-run.js";
import type { RenderedRow } from "../supervised/training-data.js";
import { type LabeledComparison, swapComparison } from "./comparison.js";

/** Label of a tie. */
const EVEN = Float32Array.of(0.5);

/** The option table of `pairData`. */
export const PAIR_OPTIONS = f.optionTable({ maxLength: DATUM_OPTIONS.fields.maxLength });

/** A comparison as the two datums of `dpoLoss`, the better answer first; empty if the answers are equal. */
export function pairData(
  comparison: LabeledComparison,
  renderer: Renderer,
  options: Pick<DatumOptions, "maxLength"> = {},
): readonly Datum[] {
  const { maxLength } = PAIR_OPTIONS.check(options, "pairData");
  return renderPair(comparison, { renderer, maxLength }).data;
}

/** Training data of a pair, with its token counts. */
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

/** Trains on an answer of several messages as a whole if the format writes it as one sequence, else on its last message. */
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
