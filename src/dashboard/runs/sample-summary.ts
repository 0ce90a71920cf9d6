import type { TextTokenizer } from "../../tokenizers/index.js";
import type { SampleSummary } from "../api.js";
import { fieldsIn, finiteNumber, type SampleLine } from "./sample-lines.js";
import { firstWords, type TextOfSample, textOfSample } from "./sample-text.js";
import { shownText } from "./shown-message.js";

/** A sample as lists show it, with its whole texts. */
export function summarized(
  line: SampleLine,
  place: number,
  tokenizer: TextTokenizer | undefined,
): { readonly summary: SampleSummary; readonly text: TextOfSample } {
  const steps = fieldsIn(line["steps"]);
  const total = line["total_reward"];
  const reason = line["stop_reason"];
  const weights = line["weights"];
  const text = textOfSample(line, tokenizer);
  const summary = {
    place,
    group: finiteNumber(line["group_idx"]) ?? 0,
    index: finiteNumber(line["traj_idx"]) ?? finiteNumber(line["index"]) ?? place,
    tags: Array.isArray(line["tags"]) ? line["tags"].map(shownText) : [],
    ...(total === undefined ? {} : { reward: finiteNumber(total) ?? null }),
    ...(typeof reason === "string" ? { stopReason: reason } : {}),
    turnCount: steps.length,
    tokenCount: Array.isArray(weights)
      ? weights.filter((weight) => typeof weight === "number" && weight > 0).length
      : steps.reduce((sum, step) => sum + (finiteNumber(step["ac_len"]) ?? 0), 0),
    prompt: firstWords(text.prompt),
    answer: firstWords(text.answer),
    promptKey: text.promptKey,
  };
  return { summary, text };
}
