import { mainThread, type SessionRecord, type SessionThread } from "../../gateway/session-record.js";
import { type Message, textOf } from "../../renderers/index.js";
import { ModelInput } from "../../wire/index.js";
import type { Logs, Metrics, Trajectory, Turn } from "../environments/index.js";
import type { Rewarded } from "../environments/reward.js";
import { NO_ACTION } from "../rollouts/turns.js";
import type { AgentEnd, AgentToolResult } from "./agent.js";

/**
 * The episode of a session: the turns of its threads in order, each with exactly the sampled tokens. Each thread begins a
 * new datum. Answers that the agent requested again and then did not use are masked.
 */
export function sessionTrajectory(
  session: SessionRecord,
  { reward, metrics = {}, logs = {} }: Rewarded,
  end: AgentEnd,
): Trajectory {
  const turns = session.threads.flatMap((thread, number) => threadTurns(thread, number));
  const { requests, failures, unfinished } = session.counts;
  const last = turns.pop() ?? NO_TURN;
  const counts = {
    requests,
    failed_requests: failures,
    unfinished_answers: unfinished,
    forks: Math.max(0, session.threads.length - 1),
  };
  const messages = mainThread(session)?.messages;
  return {
    turns: [
      ...turns,
      {
        ...last,
        ...{ reward, isDone: true },
        metrics: { ...last.metrics, ...counts, ...metrics },
        logs: { ...last.logs, ...logs },
      },
    ],
    finalObservation: ModelInput.empty(),
    end,
    ...(messages !== undefined && { messages }),
  };
}

/** The episode of an agent that never called the model: a reward, and nothing to train on. */
const NO_TURN: Turn = {
  observation: ModelInput.empty(),
  action: NO_ACTION,
  ...{ reward: 0, isDone: true, isMasked: false },
  ...{ metrics: {} as Metrics, logs: {} as Logs },
};

function threadTurns({ turns, fork }: SessionThread, number: number): Turn[] {
  return turns.map(({ prompt, tokens, logprobs, stopReason, step, isRepeated }, place) => ({
    observation: prompt,
    action: { tokens, logprobs, stopReason, ...(step !== undefined && { samplerStep: step }) },
    ...{ reward: 0, isDone: false, isMasked: isRepeated },
    metrics: {} as Metrics,
    logs: {
      ...(number > 0 && { thread: number }),
      ...(place === 0 && fork && { fork: fork.why }),
      ...(isRepeated && { repeated: "the agent asked again and went on with another answer" }),
    } as Logs,
  }));
}

/** The text of the last answer of a conversation. */
export function lastAnswer(messages: readonly Message[]): string {
  const last = messages.findLast(({ role }) => role === "assistant");
  return last === undefined ? "" : textOf(last);
}

/** The tool calls of a conversation, with what the agent sent as their results. */
export function toolResultsOf(messages: readonly Message[]): AgentToolResult[] {
  const results = new Map(
    messages.flatMap((message) =>
      message.role === "tool" && message.toolCallId !== undefined
        ? [[message.toolCallId, textOf(message)] as const]
        : [],
    ),
  );
  return messages.flatMap(({ role, toolCalls = [] }) =>
    role !== "assistant"
      ? []
      : toolCalls.map(({ id, name, arguments: given }) => ({
          name,
          arguments: given,
          result: id === undefined ? undefined : results.get(id),
        })),
  );
}
