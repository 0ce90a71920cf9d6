import type { Message } from "../../renderers/index.js";
import { subfield } from "../../wire/index.js";
import type { Source } from "../data/index.js";
import type { RowShape } from "../data/read-row.js";
import { either, type Fields, isAbsent, type RowReader } from "../data/row-reader.js";
import { type RowsFrom, rowsFrom } from "../data/row-sources.js";
import type { LabeledComparison, PreferenceLabel } from "./comparison.js";

/** Source of comparisons, for preference training. */
export type ComparisonSource = Source<LabeledComparison>;

/** Description of comparisons in errors. */
export const COMPARISONS = 'comparisons, as comparisons("pairs.jsonl") gives them';

/** A row in code: a comparison, or an object with the fields of a file's line. */
export type ComparisonLike = LabeledComparison | Readonly<Record<string, unknown>>;

/**
 * Reads comparisons from the kinds of files that `conversations` reads, or from rows in code. A row has `chosen` and
 * `rejected`, or `completion_a`, `completion_b` and a `label` (`A`, `B` or `Tie`); each of them text or messages. Their
 * prompt is `prompt` (or `messages`), or the messages with which both begin.
 */
export function comparisons(from: RowsFrom<ComparisonLike>): ComparisonSource {
  return rowsFrom(from, comparisonShape);
}

type Answers = Omit<LabeledComparison, "tools">;

const NOTHING: Answers = { prompt: [], completionA: [], completionB: [], label: "Tie" };

export const comparisonShape: RowShape<LabeledComparison> = (fields, reader) => {
  const tools = reader.tools(fields);
  const isOrdered = !isAbsent(fields["chosen"]) || !isAbsent(fields["rejected"]);
  const answers = isOrdered ? orderedAnswers(fields, reader) : labeledAnswers(fields, reader);
  checkRoles(answers, reader);
  return { ...answers, ...(tools && { tools }) };
};

/** `{ prompt, completion_a, completion_b, label }`; the Python cookbook puts the first three into a `comparison`. */
function labeledAnswers(fields: Fields, reader: RowReader): Answers {
  const isNested = !isAbsent(fields["comparison"]);
  const prefix = isNested ? "comparison" : "";
  const inner = isNested ? reader.record(fields["comparison"], prefix) : fields;
  if (inner === undefined) return NOTHING;
  const [keyA, completionA] = either(inner, "completion_a", "completion_A", "completionA");
  const [keyB, completionB] = either(inner, "completion_b", "completion_B", "completionB");
  if (isAbsent(completionA) && isAbsent(completionB)) {
    reader.missing(
      "chosen",
      "chosen and rejected are missing, and so are completion_a and completion_b",
      fields,
    );
    return NOTHING;
  }
  const [promptKey, prompt] = either(inner, "prompt", "messages", "prompt_conversation");
  return {
    prompt: reader.textOrMessages(prompt, subfield(prefix, promptKey), "user"),
    completionA: reader.textOrMessages(completionA, subfield(prefix, keyA), "assistant"),
    completionB: reader.textOrMessages(completionB, subfield(prefix, keyB), "assistant"),
    label: labelOf(fields["label"], reader),
  };
}

const LABELS: Readonly<Record<string, PreferenceLabel>> = { a: "A", b: "B", tie: "Tie" };

function labelOf(value: unknown, reader: RowReader): PreferenceLabel {
  const label = typeof value === "string" ? LABELS[value.toLowerCase()] : undefined;
  if (label === undefined) reader.wrong("label", "A, B or Tie", value);
  return label ?? "Tie";
}

/** `{ prompt, chosen, rejected }`, or the last two as whole conversations. */
function orderedAnswers(fields: Fields, reader: RowReader): Answers {
  const [promptKey, given] = either(fields, "prompt", "messages");
  const prompt = isAbsent(given) ? undefined : reader.textOrMessages(given, promptKey, "user");
  const chosen = spokenBy(fields, "chosen", prompt, reader);
  const rejected = spokenBy(fields, "rejected", prompt, reader);
  if (reader.problems.length > 0) return NOTHING;
  const isWhole = [chosen, rejected].map(([first]) => first?.role !== "assistant");
  if (isWhole[0] !== isWhole[1]) {
    const [whole, other] = isWhole[0] ? ["chosen", "rejected"] : ["rejected", "chosen"];
    reader.problem(other!, `${other} is an answer alone, and ${whole} a whole conversation`);
    return NOTHING;
  }
  if (isWhole[0]) return splitWhole(chosen, rejected, prompt, reader);
  if (prompt === undefined)
    reader.missing("prompt", "prompt is missing, and chosen and rejected are answers alone", fields);
  return { prompt: prompt ?? [], completionA: chosen, completionB: rejected, label: "A" };
}

function spokenBy(
  fields: Fields,
  key: "chosen" | "rejected",
  prompt: readonly Message[] | undefined,
  reader: RowReader,
): readonly Message[] {
  const value = fields[key];
  const transcript = typeof value === "string" && prompt === undefined ? readTranscript(value) : undefined;
  return transcript ?? reader.textOrMessages(value, key, "assistant");
}

const SPEAKERS: Readonly<Record<string, string>> = { Human: "user", Assistant: "assistant" };

/** A conversation in the format of Anthropic's hh-rlhf, as one text: `\n\nHuman: ...\n\nAssistant: ...`. */
function readTranscript(text: string): readonly Message[] | undefined {
  const parts = `\n\n${text.trimStart()}`.split(/\n\n(Human|Assistant):/);
  if (parts[0] !== "" || parts.length < 5) return undefined;
  return parts.flatMap((speaker, place) =>
    place % 2 === 0 ? [] : [{ role: SPEAKERS[speaker]!, content: parts[place + 1]!.trim() }],
  );
}

/** The common beginning of both is the prompt. */
function splitWhole(
  chosen: readonly Message[],
  rejected: readonly Message[],
  prompt: readonly Message[] | undefined,
  reader: RowReader,
): Answers {
  const most = Math.min(chosen.length, rejected.length) - 1;
  let shared = 0;
  while (shared < most && isSame(chosen[shared]!, rejected[shared]!)) shared += 1;
  for (const [field, messages] of [["chosen", chosen] as const, ["rejected", rejected] as const]) {
    if (messages[shared]!.role === "assistant") continue;
    const path = `${field}[${shared}]`;
    reader.problem(path, `${path} must be an answer, since chosen and rejected are the same only before it`);
  }
  const isKnown = (asked: Message) => chosen.slice(0, shared).some((message) => isSame(asked, message));
  if (prompt?.every(isKnown) === false)
    reader.problem("prompt", "prompt must be what chosen and rejected begin with");
  return {
    prompt: chosen.slice(0, shared),
    completionA: chosen.slice(shared),
    completionB: rejected.slice(shared),
    label: "A",
  };
}

/** The reader writes the fields of every message in the same order. */
function isSame(one: Message, other: Message): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function checkRoles({ prompt, completionA, completionB }: Answers, reader: RowReader): void {
  if (reader.problems.length > 0) return;
  if (prompt.at(-1)?.role === "assistant")
    reader.problem("prompt", "prompt must end with what is answered, not with an assistant's message");
  for (const completion of [completionA, completionB]) {
    const isAnswer = completion[0]?.role === "assistant" && completion.at(-1)?.role === "assistant";
    if (isAnswer) continue;
    const field = completion === completionA ? "first" : "second";
    reader.problem("", `the ${field} answer must begin and end with a message of the assistant`);
  }
}
