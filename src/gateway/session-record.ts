import type { Message, ToolDeclaration } from "../renderers/messages.js";
import type { ModelInput, StopReason } from "../wire/index.js";

/** One answer of a session: exactly the sampled tokens, and their prompt. */
export interface SampledTurn {
  readonly prompt: ModelInput;
  readonly tokens: Int32Array;
  /** Logprob of each token when it was sampled. */
  readonly logprobs: Float32Array;
  readonly stopReason: StopReason;
  /** The gateway's name of the model that answered. */
  readonly model: string;
  /** After how many steps of training its weights were taken, where the session's sampler says so. */
  readonly step?: number | undefined;
  /** Number of messages of the thread in the prompt; the answer is the next message. */
  readonly messageCount: number;
  /** True for an answer that the agent requested again and then did not use. */
  readonly isRepeated: boolean;
  /** When the answer was complete, in milliseconds since 1970. */
  readonly at: number;
}

/** One answer of another service that a request was passed to; only its messages are known. */
export interface PassedTurn {
  /** The model's name, as the service has it. */
  readonly model: string;
  /** Why the answer ended, in the service's words. */
  readonly stopReason: string;
  /** How many messages of the thread come before the answer. */
  readonly messageCount: number;
  /** When the answer was complete, in milliseconds since 1970. */
  readonly at: number;
}

/** Where and why a conversation left the tokens of an earlier turn. */
export interface Fork {
  /** The index of the first message that differs from what the session knew. */
  readonly message: number;
  /** The reason in words: "message 3 (user) differs". */
  readonly why: string;
  /** The thread that it left, and how many of its turns both have in common. Absent where nothing is in common. */
  readonly from?: { readonly thread: number; readonly turns: number } | undefined;
}

/**
 * Turns that continue each other: each prompt begins with the previous prompt and the tokens sampled after it. Each
 * answer of a session is in one thread, once. The first prompt of a fork includes the part that it shares with the thread
 * it left.
 */
export interface SessionThread {
  readonly turns: readonly SampledTurn[];
  /** The answers of another service, in a thread that was passed to it; `turns` is then empty. */
  readonly passed?: readonly PassedTurn[] | undefined;
  /** The conversation to the last answer, tool declarations left out. */
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  /** Absent for the session's first conversation. */
  readonly fork?: Fork | undefined;
}

/** Why a session is over. */
export type SessionEnd =
  | "ended"
  | "idle"
  | "time_limit"
  | "token_limit"
  | "request_limit"
  | "owner_gone"
  | "closed";

/** The record of one episode of an agent. */
export interface SessionRecord {
  readonly id: string;
  readonly problem?: unknown;
  readonly group?: number | undefined;
  readonly step?: number | undefined;
  readonly tags: readonly string[];
  readonly startedAt: number;
  readonly endedAt?: number | undefined;
  /** Why it is over; absent while it runs. */
  readonly end?: SessionEnd | undefined;
  readonly reward?: number | undefined;
  /** In the order in which they began. */
  readonly threads: readonly SessionThread[];
  readonly counts: SessionCounts;
  /** Names of request settings that had no effect. */
  readonly ignored: readonly string[];
}

/** How many requests a session had, and how many tokens were sampled for it. */
export interface SessionCounts {
  readonly requests: number;
  /** Requests that were refused or failed. */
  readonly failures: number;
  /** Incomplete answers: the agent left, or the server was lost. They are in no thread. */
  readonly unfinished: number;
  readonly sampledTokens: number;
}

/**
 * The main thread of an episode: the one with the most sampled tokens, including those that it shares with the threads it
 * left. Side requests such as titles are shorter.
 */
export function mainThread({ threads }: Pick<SessionRecord, "threads">): SessionThread | undefined {
  let best: { readonly thread: SessionThread; readonly length: number } | undefined;
  for (const thread of threads) {
    const last = thread.turns.at(-1);
    if (last === undefined) continue;
    const length = last.prompt.length + last.tokens.length;
    const isLonger = best === undefined || length >= best.length;
    if (isLonger) best = { thread, length };
  }
  return best?.thread;
}
