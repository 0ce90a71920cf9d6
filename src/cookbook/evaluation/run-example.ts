import {
  AuthenticationError,
  messageOf,
  NotFoundError,
  PaymentRequiredError,
  PermissionDeniedError,
  TinkerError,
  ValidationError,
} from "../../errors.js";
import { type Renderer, thinkingOf } from "../../renderers/index.js";
import { timeLimit, untilAborted } from "../../transport/index.js";
import {
  type ChatOptions,
  type ChatSample,
  type ChatSampler,
  chat,
  isContextOverflow,
} from "../chat/index.js";
import type { Grade, Graded, Reward } from "./graders.js";
import type { Answered } from "./result.js";
import { type Task, withSystem } from "./tasks.js";

/** Settings that all examples of a run share. */
export interface ExampleSettings {
  readonly sampler: ChatSampler;
  readonly grade: Grade;
  readonly system: string | undefined;
  readonly exampleTimeoutMs: number;
  readonly chat: ChatOptions & { readonly renderer: Renderer };
}

type Example = Answered["examples"][number];

/**
 * Samples and grades the answers to one task. A failure here is an error of this task; only failures that would affect
 * every task are thrown.
 */
export async function runExample(
  task: Task,
  index: number,
  settings: ExampleSettings,
  runSignal: AbortSignal,
): Promise<Answered> {
  const startedAt = performance.now();
  const { exampleTimeoutMs } = settings;
  const timeout = () => new TinkerError(`timeout: no result after ${exampleTimeoutMs / 1000} s`);
  const time = timeLimit(exampleTimeoutMs, runSignal, timeout);
  const { numSamples = 1, renderer } = settings.chat;
  const outcome = async (): Promise<{ prompt: string; examples: readonly Example[] }> => {
    try {
      const { prompt, samples } = await untilAborted(ask(task, settings, time.signal), time.signal);
      const graded = samples.map((answer, sample) =>
        gradeSample({ task, answer, sample, promptTokens: prompt.length }, settings.grade, time.signal),
      );
      const examples = await Promise.all(graded);
      return { prompt: prompt.isText ? renderer.tokenizer.decode(prompt.toInts()) : "", examples };
    } catch (error) {
      if (isContextOverflow(error)) return { prompt: "", examples: tooLong(task, numSamples, error) };
      if (concernsAll(error)) throw error;
      const failed = { id: task.id, ...FAILED, error: reasonOf(error, time.signal) };
      return { prompt: "", examples: every(numSamples, failed) };
    }
  };
  try {
    const { prompt, examples } = await outcome();
    // An example that was interrupted by the end of the run has no result.
    if (runSignal.aborted) throw new TinkerError("The evaluation has ended.", { cause: runSignal.reason });
    return { task, index, prompt, examples, seconds: (performance.now() - startedAt) / 1000 };
  } finally {
    time.end();
  }
}

function ask(
  { messages, tools }: Task,
  { sampler, system, chat: options }: ExampleSettings,
  signal: AbortSignal,
) {
  return chat(sampler, withSystem(messages, system), { ...options, tools, signal });
}

const FAILED = {
  outcome: "error",
  reward: 0,
  text: "",
  thinking: "",
  metrics: {},
  logs: {},
  promptTokens: 0,
  tokens: 0,
} as const;

function every(numSamples: number, example: Omit<Example, "sample">): readonly Example[] {
  return Array.from({ length: numSamples }, (_, sample) => ({ ...example, sample }));
}

function tooLong({ id }: Task, numSamples: number, error: unknown): readonly Example[] {
  const details = { metrics: { context_overflow: 1 }, logs: { refused: messageOf(error) } };
  return every(numSamples, { id, ...FAILED, outcome: "truncated", ...details, error: undefined });
}

async function gradeSample(
  {
    task,
    answer,
    sample,
    promptTokens,
  }: {
    readonly task: Task;
    readonly answer: ChatSample;
    readonly sample: number;
    readonly promptTokens: number;
  },
  grade: Grade,
  signal: AbortSignal,
): Promise<Example> {
  const { message, text, tokens, stopReason } = answer;
  const example = {
    id: task.id,
    sample,
    ...FAILED,
    text,
    thinking: thinkingOf(message),
    promptTokens,
    tokens: tokens.length,
    error: undefined,
  };
  if (stopReason === "length") {
    return { ...example, outcome: "truncated", metrics: { max_tokens_reached: 1 } };
  }
  try {
    const attempt = { task, text, answer, signal };
    const given = await untilAborted(Promise.resolve(attempt).then(grade), signal);
    const { reward, metrics = {}, logs = {} } = gradedOf(given);
    if (reward === undefined) {
      const error = "the grader gave no reward";
      return { ...example, outcome: "ungraded", error, metrics, logs };
    }
    return { ...example, outcome: "graded", reward: checkedReward(reward), metrics, logs };
  } catch (error) {
    if (concernsAll(error)) throw error;
    return { ...example, error: `the grader failed: ${reasonOf(error, signal)}` };
  }
}

function gradedOf(given: Reward | Graded): Graded {
  return typeof given === "object" && given !== null ? given : { reward: given };
}

function checkedReward(reward: number | boolean): number {
  const value = Number(reward);
  if (value >= 0 && value <= 1) return value;
  throw new TinkerError(`a reward must be a number from 0 to 1, or true or false, got ${String(reward)}`);
}

/** An abort error does not say why; the signal does. */
function reasonOf(error: unknown, signal: AbortSignal): string {
  return messageOf(signal.aborted ? signal.reason : error);
}

/** A refused key or a negative temperature would fail for every task. */
export function concernsAll(error: unknown): boolean {
  return (
    error instanceof AuthenticationError ||
    error instanceof PaymentRequiredError ||
    error instanceof PermissionDeniedError ||
    error instanceof NotFoundError ||
    (error instanceof ValidationError && /^(?:samplingParams|numSamples)\b/.test(error.field))
  );
}
