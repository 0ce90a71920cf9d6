import { ValidationError } from "../../errors.js";
import { type Message, type Renderer, textOf } from "../../renderers/index.js";
import type { ModelInput } from "../../wire/index.js";
import type { Conversation } from "../data/index.js";
import type { RolloutDatum } from "../reinforcement/index.js";
import { likeliestTokens, renormalized, type SoftTarget } from "./soft-targets.js";
import type { TeacherSampler } from "./teacher.js";

/** Writes the teacher's question: that of the student, with a good answer to it. */
export type Hint = (question: string, answer: string) => string;

/** What a conversation asks, and the answer that is known to be good. */
export interface HintedQuestion {
  readonly messages: readonly Message[];
  readonly answer: string;
}

/** The hint when nobody gives another. */
export const defaultHint: Hint = (question, answer) =>
  `${question}\n\nHere is a good answer to this:\n${answer}\n\nNow give an answer of your own.`;

/** Takes the last message, an assistant's, as the answer that is known to be good. */
export function hintedQuestion({ messages }: Conversation, place: string): HintedQuestion {
  const last = messages.at(-1);
  const question = messages.at(-2);
  if (last?.role !== "assistant" || question?.role !== "user") {
    throw new ValidationError(
      "data",
      `${place}: messages must end with a user's question and an assistant's good answer to it`,
    );
  }
  return { messages: messages.slice(0, -1), answer: textOf(last) };
}

/** What the teacher reads before the student's answer. */
export function hintedPrompt(
  { messages, answer }: HintedQuestion,
  renderer: Renderer,
  hint: Hint,
): ModelInput {
  const question = messages.at(-1)!;
  return renderer.buildPrompt([
    ...messages.slice(0, -1),
    { ...question, content: hint(textOf(question), answer) },
  ]);
}

/** How a teacher with a hint reads what the student said. */
export interface HintedReading {
  readonly teacher: TeacherSampler;
  /** What it reads before the answer. */
  readonly prompt: ModelInput;
  /** Tokens that it can read; the end of a longer answer teaches nothing. */
  readonly maxLength?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The student's answer behind the teacher's prompt; undefined where there is no room for any of it. */
function readAnswer({ targetTokens, mask }: RolloutDatum, { prompt, maxLength }: HintedReading) {
  const first = mask.findIndex((taught) => taught > 0);
  const answer = first < 0 ? targetTokens.subarray(0, 0) : targetTokens.subarray(first);
  const room = Math.max(0, (maxLength ?? Number.POSITIVE_INFINITY) - prompt.length);
  const read = answer.subarray(0, Math.min(room, answer.length));
  const sequence = read.length === 0 ? undefined : prompt.append({ type: "encoded_text", tokens: read });
  const taught = [...read.keys()].map((at) => first + at).filter((position) => mask[position]! > 0);
  return { first, sequence, taught, isCut: read.length < answer.length };
}

/** What a teacher's likeliest tokens make of a datum. */
export interface HintedTargets {
  readonly targets: readonly SoftTarget[];
  /** Sampled tokens that the teacher has read. */
  readonly tokens: number;
  readonly isCut: boolean;
}

/** The teacher's likeliest tokens for each that the student sampled, but for the first `skipTokens`. */
export async function hintedTargets(
  datum: RolloutDatum,
  { topk, skipTokens, ...reading }: HintedReading & { readonly topk: number; readonly skipTokens: number },
): Promise<HintedTargets> {
  const { first, sequence, taught, isCut } = readAnswer(datum, reading);
  const { teacher, prompt, signal } = reading;
  if (sequence === undefined) return { targets: [], tokens: 0, isCut };
  const likeliest = await likeliestTokens(teacher, sequence, topk, signal);
  const targets = taught.slice(skipTokens).flatMap((position) => {
    const candidates = likeliest[prompt.length + position - first];
    if (candidates === null || candidates === undefined) return [];
    return [{ position, weight: 1, distribution: renormalized(candidates, topk) }];
  });
  return { targets, tokens: taught.length, isCut };
}

/** What a teacher thinks of each token that the student sampled; undefined for those it has not read. */
export interface HintedLogprobs {
  readonly logprobs: readonly (number | undefined)[];
  readonly isCut: boolean;
}

/** The teacher's logprobs of the student's tokens, by position. */
export async function hintedLogprobs(datum: RolloutDatum, reading: HintedReading): Promise<HintedLogprobs> {
  const { first, sequence, taught, isCut } = readAnswer(datum, reading);
  const { teacher, prompt, signal } = reading;
  const logprobs = new Array<number | undefined>(datum.mask.length).fill(undefined);
  if (sequence === undefined) return { logprobs, isCut };
  const scores = await teacher.computeLogprobs(sequence, { signal });
  // Counted from the end: some servers leave out the first token, which has none.
  const answerAt = prompt.length + scores.length - sequence.length;
  for (const position of taught) logprobs[position] = scores[answerAt + position - first] ?? undefined;
  return { logprobs, isCut };
}
