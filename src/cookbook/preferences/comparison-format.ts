import { TinkerError } from "../../errors.js";
import type { Message, Renderer } from "../../renderers/index.js";
import { datumFromAnswer, tokensAt } from "../../training/datum-from.js";
import type { Datum, ModelInput } from "../../wire/index.js";
import { datumFromExample, toExamples } from "../data/index.js";
import type { Comparison, LabeledComparison, PreferenceLabel } from "./comparison.js";

const LABELS = ["A", "B", "Tie"] as const satisfies readonly PreferenceLabel[];

/** Writes a comparison as the conversation that a preference model reads; it answers `A`, `B` or `Tie`. */
export function comparisonMessages(
  { prompt, completionA, completionB }: Comparison,
  headingRole = "system",
): readonly Message[] {
  const heading = (text: string): Message => ({ role: headingRole, content: `==== ${text} ====` });
  return [
    ...prompt,
    heading("Completion A"),
    ...completionA,
    heading("Completion B"),
    ...completionB,
    heading("Preference"),
  ];
}

/** A comparison in tokens. */
export interface RenderedComparison {
  /**
   * Everything before the label, including what the format writes before any answer, such as an empty block of
   * thoughts.
   */
  readonly prompt: ModelInput;
  /** First token of each label. */
  readonly labels: Readonly<Record<PreferenceLabel, number>>;
}

/** Writes a comparison so that the next token is the label, whatever the renderer's format. */
export function renderComparison(comparison: Comparison, renderer: Renderer): RenderedComparison {
  const { tools } = comparison;
  const asked = comparisonMessages(comparison, headingRoleOf(renderer));
  const examples = LABELS.map((content) => {
    const messages = [...asked, { role: "assistant", content }];
    return toExamples({ messages, tools }, renderer, "last_assistant_message").at(-1)!;
  });
  const written = examples.map(({ input }) => tokensAt(input.chunks));
  const [first] = written;
  let length = 0;
  while (length < first!.length && written.every((tokens) => tokens[length] === first![length])) length += 1;
  const [A, B, Tie] = written.map((tokens) => tokens[length]);
  if (A === undefined || B === undefined || Tie === undefined || new Set([A, B, Tie]).size < 3)
    throw new TinkerError("In this renderer's tokens the labels A, B and Tie look the same.");
  const weights = new Float32Array(first!.length).fill(1, length, length + 1);
  const upToLabel = datumFromExample({ input: examples[0]!.input, weights }, { maxLength: length + 1 });
  return { prompt: upToLabel!.modelInput, labels: { A, B, Tie } };
}

const headingRoles = new WeakMap<Renderer, string>();

/** In formats that only allow a system message at the beginning, the user says the headings. */
function headingRoleOf(renderer: Renderer): string {
  const known = headingRoles.get(renderer);
  if (known !== undefined) return known;
  let role = "system";
  try {
    renderer.buildPrompt([
      { role: "user", content: "" },
      { role, content: "" },
    ]);
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    role = "user";
  }
  headingRoles.set(renderer, role);
  return role;
}

/** Makes the datum that a preference model trains on: only the label is trained. */
export function labelDatum(comparison: LabeledComparison, renderer: Renderer): Datum {
  const { prompt, labels } = renderComparison(comparison, renderer);
  return datumFromAnswer(prompt, [labels[comparison.label]]);
}
