import { ValidationError } from "../../errors.js";
import { type Message, type ParseTermination, type Renderer, textOf } from "../../renderers/index.js";
import { type PreparedAnswer, prepareAnswer } from "../../renderers/prepare-answer.js";
import * as f from "../../wire/fields/index.js";
import type { ModelInput, StopReason } from "../../wire/index.js";
import { roleProblems } from "../data/roles.js";
import type { Action, Environment, GroupSource, RolloutContext, StepResult } from "./environment.js";
import { type EnvironmentGroupOptions, GROUP_OPTIONS, groupsOf } from "./environment-groups.js";
import type { ItemSource } from "./replay.js";
import { askReward, type Rewarded, type RewardResult, readReward } from "./reward.js";

/** A question: a text or a conversation, and any fields that your reward needs. */
export type Problem =
  | { readonly prompt: string; readonly messages?: undefined }
  | { readonly messages: readonly Message[]; readonly prompt?: undefined };

/** An answer to a problem, as a reward function receives it. */
export interface ProblemAnswer<P = Problem> {
  readonly problem: P;
  /** Text of the answer, without thoughts. */
  readonly text: string;
  readonly message: Message;
  /** The problem's conversation including the answer. */
  readonly messages: readonly Message[];
  readonly tokens: Int32Array;
  /** Why the answer ended; `length`: a limit cut it off. */
  readonly stopReason: StopReason;
  readonly termination: ParseTermination;
  /** Aborted when the rollout ends. */
  readonly signal: AbortSignal;
}

/** Source of problems, and the reward of their answers. */
export interface ProblemGroupOptions<P extends Problem>
  extends Omit<EnvironmentGroupOptions<P>, "tasks" | "environment" | "renderer"> {
  /**
   * Problems. An array is shuffled in each epoch; another iterable keeps its order; a function is called with the
   * problem's number.
   */
  readonly problems: ItemSource<P>;
  readonly reward: (answer: ProblemAnswer<P>) => RewardResult | Promise<RewardResult>;
  /**
   * Whether an answer has the required form. The reward is then `0.1 * (format - 1) + reward`, and both parts are
   * metrics, `format` and `correct`. An answer without its stop sequence has the wrong form.
   */
  readonly format?: ((answer: ProblemAnswer<P>) => boolean | number | Promise<boolean | number>) | undefined;
  /** Subtracted for a wrong form. Default: 0.1. */
  readonly formatWeight?: number | undefined;
  readonly renderer: Renderer;
}

type Problems = ProblemGroupOptions<Problem>;
/** The option table for problems and their rewards. */
export const PROBLEM_OPTIONS = {
  problems: f.option(f.opaque as f.Field<Problems["problems"]>, "problems to solve"),
  reward: f.option(
    f.functionOf<Problems["reward"]>("a function of an answer, as ({ problem, text }) => 1"),
    "how good an answer is",
  ),
  format: f.option(f.optional(f.functionOf<NonNullable<Problems["format"]>>()), "format an answer must have"),
  formatWeight: f.option(
    f.withDefault(f.number, 0.1),
    "taken off the reward of an answer without the format",
  ),
  tags: GROUP_OPTIONS.tags,
};
/** The option table of `problemGroups`. */
export const PROBLEM_GROUP_OPTIONS = f.optionTable({
  ...GROUP_OPTIONS,
  ...PROBLEM_OPTIONS,
  renderer: f.option(f.having<Renderer>("a renderer", "buildPrompt"), "chat format of the problems"),
} satisfies f.OptionsOf<Problems>);

/**
 * Makes groups of answers to problems, each rewarded by a function. `ItemSource` says how problems are ordered and
 * replayed.
 */
export function problemGroups<P extends Problem>(options: ProblemGroupOptions<P>): GroupSource {
  PROBLEM_GROUP_OPTIONS.check(options, "problemGroups");
  const { problems } = options;
  return groupsOf("problems", { ...options, tasks: problems }, (problem, field) => {
    const messages = messagesOf(problem, field, options.renderer);
    return () => problemEnvironment(problem, messages, options);
  });
}

/** Prompt of a problem. */
export function promptOf(problem: Problem, field: string, renderer: Renderer): ModelInput {
  return renderer.buildPrompt(messagesOf(problem, field, renderer));
}

function messagesOf(problem: Problem, field: string, renderer: Renderer): readonly Message[] {
  f.checkObject(problem, field);
  const { prompt, messages } = problem as { prompt?: unknown; messages?: unknown };
  if ((prompt === undefined) === (messages === undefined)) {
    const found = prompt === undefined ? "neither" : "both";
    throw f.wrongField(field, `must have a prompt or messages, and has ${found}`);
  }
  if (messages === undefined) {
    if (typeof prompt !== "string") throw f.wrongValue(`${field}.prompt`, "a text", prompt);
    return [{ role: "user", content: prompt }];
  }
  if (!Array.isArray(messages) || messages.length === 0) {
    throw f.wrongValue(`${field}.messages`, "a list of at least one message", messages);
  }
  const [wrong] = roleProblems(messages, renderer);
  if (wrong !== undefined) throw new ValidationError(field, `${field}.${wrong.message}`);
  return messages;
}

function problemEnvironment<P extends Problem>(
  problem: P,
  messages: readonly Message[],
  { renderer, reward, format, formatWeight = PROBLEM_OPTIONS.formatWeight.fallback! }: ProblemGroupOptions<P>,
): Environment {
  let conversation = messages;
  let prepared: PreparedAnswer | undefined;
  let context: RolloutContext;
  const asked = <T>(
    what: string,
    answer: ProblemAnswer<P>,
    ask: (answer: ProblemAnswer<P>) => Promise<T>,
  ): Promise<T> => {
    const graded = { problem, answer: answer.text };
    const limits = { timeoutMs: context.termination?.graderTimeoutMs, signal: context.signal };
    return askReward(what, graded, limits, (signal) => ask({ ...answer, signal }));
  };
  const grade = async (answer: ProblemAnswer<P>): Promise<Rewarded> => {
    const rewarded = await asked("reward", answer, async (limited) => readReward(await reward(limited)));
    if (format === undefined) return rewarded;
    const isEnded = answer.termination === "stop_sequence";
    const { reward: formed } = isEnded
      ? await asked("format", answer, async (limited) => readReward(Number(await format(limited)), "format"))
      : { reward: 0 };
    return {
      reward: formatWeight * (formed - 1) + rewarded.reward,
      metrics: { ...rewarded.metrics, format: formed, correct: rewarded.reward },
      logs: rewarded.logs,
    };
  };
  return {
    start: async (given) => {
      context = given;
      prepared = prepareAnswer(renderer, { messages });
      const { prompt, stop } = prepared;
      return { prompt, stop };
    },
    step: async ({ tokens, stopReason }: Action): Promise<StepResult> => {
      const { message, termination } = prepared!.read(tokens);
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
        signal: context.signal,
      };
      return { isDone: true, ...(await grade(answer)) };
    },
    messages: () => conversation,
  };
}
