import { ValidationError } from "../../errors.js";
import { type Message, type Renderer, textOf } from "../../renderers/index.js";
import type { ModelInput } from "../../wire/index.js";
import type { Conversation } from "../data/index.js";
import type { RolloutDatum } from "../reinforcement/index.js";
import { likeliestTokens, renormalized, type SoftTarget } from "./soft-targets.js";
import type { TeacherSampler } from "./teacher.js";

/** Writes the teacher's question: the student's question with a good answer to it. */
export type Hint = (question: string, answer: string) => string;

/** A question with a known good answer. */
export interface HintedQuestion {
  readonly messages: readonly Message[];
  readonly answer: string;
}

/** Hint that is used by default. */
export const defaultHint: Hint = (question, answer) =>
  `${question}\n\nHere is a good answer to this:\n${answer}\n\nNow give an answer of your own.`;

/** Treats the last message, the assistant's, as the known good answer. */
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

/** The teacher's prompt before the student's answer. */
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

/** How a teacher with a hint reads the student's answer. */
export interface HintedReading {
  readonly teacher: TeacherSampler;
  /** Prompt before the answer. */
  readonly prompt: ModelInput;
  /** Tokens that the teacher can read; the end of a longer answer is not trained on. */
  readonly maxLength?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The student's answer after the teacher's prompt; undefined if none of it fits. */
function readAnswer({ targetTokens, mask }: RolloutDatum, { prompt, maxLength }: HintedReading) {
  const first = mask.findIndex((taught) => taught > 0);
  const answer = first < 0 ? targetTokens.subarray(0, 0) : targetTokens.subarray(first);
  const room = Math.max(0, (maxLength ?? Number.POSITIVE_INFINITY) - prompt.length);
  const read = answer.subarray(0, Math.min(room, answer.length));
  const sequence = read.length === 0 ? undefined : prompt.append({ type: "encoded_text", tokens: read });
  const taught = [...read.keys()].map((at) => first + at).filter((position) => mask[position]! > 0);
  return { first, sequence, taught, isCut: read.length < answer.length };
}

/** Reads the teacher's likeliest tokens at each position of the student's answer. */
export interface HintedTargets {
  readonly targets: readonly SoftTarget[];
  /** Number of sampled tokens that the teacher has read. */
  readonly tokens: number;
  readonly isCut: boolean;
}

/** The teacher's likeliest tokens for each sampled token, except the first `skipTokens`. */
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

/** The teacher's logprob of each sampled token; undefined for tokens that it has not read. */
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
  // Counted from the end: some servers leave out the first token, which has no logprob.
  const answerAt = prompt.length + scores.length - sequence.length;
  for (const position of taught) logprobs[position] = scores[answerAt + position - first] ?? undefined;
  return { logprobs, isCut };
}
