import { ValidationError } from "../../errors.js";
import { type Message, type ParseTermination, type Renderer, textOf } from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
import { checkObject, type StopReason, wrongValue } from "../../wire/index.js";
import type { Action, Environment, GroupSource, StepResult } from "./environment.js";
import { type EnvironmentGroupOptions, groupsOf } from "./environment-groups.js";
import type { InOrder } from "./replay.js";
import { type Rewarded, type RewardResult, readReward } from "./reward.js";

/** Something to answer: a text or a conversation, and whatever else your reward wants to know. */
export type Problem =
  | { readonly prompt: string; readonly messages?: undefined }
  | { readonly messages: readonly Message[]; readonly prompt?: undefined };

/** An answer to a problem, as a reward function gets it. */
export interface ProblemAnswer<P = Problem> {
  readonly problem: P;
  /** What the model said, without thoughts. */
  readonly text: string;
  readonly message: Message;
  /** The problem's conversation with the answer. */
  readonly messages: readonly Message[];
  readonly tokens: Int32Array;
  /** `length`: the answer was cut off. */
  readonly stopReason: StopReason;
  readonly termination: ParseTermination;
  /** Aborted when the rollout is over. */
  readonly signal: AbortSignal;
}

/** Where problems come from and what answers are worth. */
export interface ProblemGroupOptions<P extends Problem>
  extends Omit<EnvironmentGroupOptions<P>, "tasks" | "environment"> {
  /** An array is shuffled in each epoch; what else can be iterated comes in its order; a function is asked by number. */
  readonly problems: InOrder<P>;
  readonly reward: (answer: ProblemAnswer<P>) => RewardResult | Promise<RewardResult>;
  /**
   * Whether an answer has the form it should. The reward then is `0.1 * (format - 1) + reward`, and both are counted, as
   * `format` and `correct`. An answer that did not end with its stop sign has not.
   */
  readonly format?: ((answer: ProblemAnswer<P>) => boolean | number | Promise<boolean | number>) | undefined;
  /** Taken off for a wrong form. Default: 0.1. */
  readonly formatWeight?: number | undefined;
  readonly renderer: Renderer;
}

const FORMAT_WEIGHT = 0.1;

/** Groups of tries at problems, each rewarded by a function. How problems are taken and replayed: see `InOrder`. */
export function problemGroups<P extends Problem>(options: ProblemGroupOptions<P>): GroupSource {
  const { problems, reward, format = reward } = options;
  for (const [name, value] of Object.entries({ reward, format })) {
    if (typeof value !== "function") throw wrongValue(name, "a function", value);
  }
  return groupsOf("problems", { ...options, tasks: problems }, (problem, field) => {
    const messages = messagesOf(problem, field);
    return () => problemEnvironment(problem, messages, options);
  });
}

function messagesOf(problem: Problem, field: string): readonly Message[] {
  checkObject(problem, field);
  const { prompt, messages } = problem as { prompt?: unknown; messages?: unknown };
  if ((prompt === undefined) === (messages === undefined)) {
    const found = prompt === undefined ? "neither" : "both";
    throw new ValidationError(field, `${field} must have a prompt or messages, and has ${found}`);
  }
  if (messages === undefined) {
    if (typeof prompt !== "string") throw wrongValue(`${field}.prompt`, "a text", prompt);
    return [{ role: "user", content: prompt }];
  }
  if (!Array.isArray(messages) || messages.length === 0) {
    throw wrongValue(`${field}.messages`, "a list of at least one message", messages);
  }
  return messages;
}

function problemEnvironment<P extends Problem>(
  problem: P,
  messages: readonly Message[],
  { renderer, reward, format, formatWeight = FORMAT_WEIGHT }: ProblemGroupOptions<P>,
): Environment {
  let conversation = messages;
  let signal = new AbortController().signal;
  const grade = async (answer: ProblemAnswer<P>): Promise<Rewarded> => {
    const rewarded = readReward(await reward(answer));
    if (format === undefined) return rewarded;
    const isEnded = answer.termination === "stop_sequence";
    const { reward: formed } = readReward(isEnded ? Number(await format(answer)) : 0, "format");
    return {
      reward: formatWeight * (formed - 1) + rewarded.reward,
      metrics: { ...rewarded.metrics, format: formed, correct: rewarded.reward },
      logs: rewarded.logs,
    };
  };
  return {
    start: async (context) => {
      signal = context.signal;
      return { prompt: renderer.buildPrompt(messages), stop: renderer.stopSequences };
    },
    step: async ({ tokens, stopReason }: Action): Promise<StepResult> => {
      const { message, termination } = renderer.parseResponse(tokens);
      conversation = [...messages, message];
      const text = textOf(message);
      const answer = {
        problem,
        text,
        message,
        messages: conversation,
        tokens,
        stopReason,
        termination,
        signal,
      };
      return { isDone: true, ...(await untilAborted(grade(answer), signal)) };
    },
    messages: () => conversation,
  };
}
