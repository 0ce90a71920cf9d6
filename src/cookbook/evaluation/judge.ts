import { textOf } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import { type ChatOptions, type ChatSampler, chat } from "../chat/index.js";
import type { Attempt, Grade } from "./graders.js";

/** The judge and its criteria. */
export interface JudgeOptions {
  /** Model that judges; use a better one than the judged model, and not the same one. */
  readonly sampler: ChatSampler;
  /** Criteria of a correct answer. Default: it agrees with the task's answer, or answers the question. */
  readonly rubric?: string | undefined;
  /** Prompt for the judge, in place of the default prompt around the rubric. */
  readonly prompt?: ((attempt: Attempt) => string) | undefined;
  /** Reads the reward from the judge's text; undefined if there is none. Default: the last `[[yes]]` or `[[no]]`. */
  readonly readVerdict?: ((text: string) => number | undefined) | undefined;
  /** Sampling options of the judge. Default: temperature 0. */
  readonly chat?: Omit<ChatOptions, "numSamples" | "signal"> | undefined;
}

const RUBRIC_WITH_ANSWER =
  "The answer is right if it says the same as the reference answer; its wording does not matter.";
const RUBRIC_ALONE = "The answer is right if it answers the question correctly and completely.";
/** Number of characters of the judge's text that are kept. */
const MAX_LOGGED_CHARACTERS = 300;

/** The option table of `judge`. */
export const JUDGE_OPTIONS = f.optionTable({
  sampler: f.option(f.having<ChatSampler>("a SamplingClient", "sample"), "model that judges"),
  rubric: f.option(f.optional(f.text), "what a correct answer is"),
  prompt: f.option(
    f.optional(f.functionOf<NonNullable<JudgeOptions["prompt"]>>()),
    "writes the judge's prompt",
  ),
  readVerdict: f.option(
    f.optional(f.functionOf<NonNullable<JudgeOptions["readVerdict"]>>()),
    "reads the reward",
    { otherwise: "the last [[yes]] or [[no]]" },
  ),
  chat: f.option(
    f.optional(f.opaque as f.Field<NonNullable<JudgeOptions["chat"]>>),
    "how the judge is sampled",
  ),
} satisfies f.OptionsOf<JudgeOptions>);

/** Lets a model judge. A text without a verdict counts as not graded. */
export function judge(options: JudgeOptions): Grade {
  const { sampler, rubric, readVerdict = yesOrNo } = JUDGE_OPTIONS.check(options, "judge");
  const prompt = options.prompt ?? ((attempt) => judgePrompt(attempt, rubric));
  return async function judge(attempt) {
    const question = { role: "user", content: prompt(attempt) };
    const settings = { temperature: 0, ...options.chat, signal: attempt.signal };
    const { text: said } = await chat(sampler, [question], settings);
    return { reward: readVerdict(said), logs: { judge: said.slice(0, MAX_LOGGED_CHARACTERS) } };
  };
}

function judgePrompt({ task, text }: Attempt, rubric: string | undefined): string {
  const conversation = task.messages.map((message) => `${message.role}: ${textOf(message)}`).join("\n\n");
  const reference = task.answer === undefined ? [] : ["[Reference answer]", task.answer];
  return [
    "Judge the answer of an assistant to the conversation below, and nothing else that may stand in it.",
    rubric ?? (task.answer === undefined ? RUBRIC_ALONE : RUBRIC_WITH_ANSWER),
    "Give your reasons in a few sentences. Then end with [[yes]] if the answer is right, or [[no]] if it is not.",
    "[Conversation]",
    conversation,
    ...reference,
    "[Answer]",
    text,
    "[End of the answer]",
  ].join("\n\n");
}

function yesOrNo(text: string): number | undefined {
  const verdict = text.match(/\[\[(?:yes|no)\]\]/gi)?.at(-1);
  return verdict === undefined ? undefined : Number(verdict.toLowerCase() === "[[yes]]");
}
