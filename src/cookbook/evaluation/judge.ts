import { textOf } from "../../renderers/index.js";
import { type ChatOptions, type ChatSampler, chat } from "../chat/index.js";
import type { Attempt, Grade } from "./graders.js";

/** Who judges, and by what. */
export interface JudgeOptions {
  /** The model that judges; better than the one that is judged, and not the same one. */
  readonly sampler: ChatSampler;
  /** What makes an answer right. Default: it says the same as the task's answer, or answers the question. */
  readonly rubric?: string | undefined;
  /** What the judge is asked, instead of the usual prompt around the rubric. */
  readonly prompt?: ((attempt: Attempt) => string) | undefined;
  /** The reward in the judge's words, undefined where there is none. Default: the last `[[yes]]` or `[[no]]`. */
  readonly readVerdict?: ((text: string) => number | undefined) | undefined;
  /** How the judge is sampled. Default: temperature 0. */
  readonly chat?: Omit<ChatOptions, "numSamples" | "signal"> | undefined;
}

const RUBRIC_WITH_ANSWER =
  "The answer is right if it says the same as the reference answer; its wording does not matter.";
const RUBRIC_ALONE = "The answer is right if it answers the question correctly and completely.";
/** Kept of what the judge said. */
const MAX_LOGGED_CHARACTERS = 300;

/** Lets a model judge. What it says without a verdict is counted as not graded, and never guessed. */
export function judge(options: JudgeOptions): Grade {
  const { sampler, rubric, readVerdict = yesOrNo } = options;
  const prompt = options.prompt ?? ((attempt) => judgePrompt(attempt, rubric));
  return async function judge(attempt) {
    const question = { role: "user", content: prompt(attempt) };
    const settings = { temperature: 0, ...options.chat, signal: attempt.signal };
    const { text } = await chat(sampler, [question], settings);
    return { reward: readVerdict(text), logs: { judge: text.slice(0, MAX_LOGGED_CHARACTERS) } };
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
