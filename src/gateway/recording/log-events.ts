import type { Message } from "../../renderers/messages.js";
import type { AnswerFacts, SessionAnswer } from "../session-answer.js";
import type { SessionCounts, SessionEnd } from "../session-record.js";

/** The file of a recording with all events of its sessions, one per line. */
export const SESSIONS_FILE = "sessions.jsonl";

/** A session was opened. A name may be used again later, a key never. */
export interface OpenedEvent {
  readonly type: "opened";
  /** Identifies the session; equal in all its events. */
  readonly key: string;
  /** The session's name. */
  readonly id: string;
  readonly at: number;
  readonly problem?: unknown;
  readonly group?: number | undefined;
  readonly step?: number | undefined;
  readonly tags: readonly string[];
}

/** An answer, without the messages and tokens that the answer before it has. */
export interface AnsweredEvent extends Omit<AnswerFacts, "message" | "known"> {
  readonly type: "answered";
  readonly key: string;
  /** `chat`: a conversation whose tokens are known; `plain`: a prompt without messages; `passed`: answered by another service. */
  readonly kind: SessionAnswer["kind"];
  /** The base model, whose tokenizer reads the tokens. */
  readonly baseModel?: string | undefined;
  readonly stopReason: string;
  readonly answer?: Message | undefined;
  /** Whether the prompt begins with the parent's prompt and tokens; `prompt` is then what follows them. */
  readonly continues?: boolean | undefined;
  /** Tokens; null for a prompt with more than text. Absent for a passed answer. */
  readonly prompt?: readonly number[] | null | undefined;
  readonly tokens?: readonly number[] | undefined;
  readonly logprobs?: readonly number[] | undefined;
}

/** The reward that a session was given. */
export interface RewardEvent {
  readonly type: "reward";
  readonly key: string;
  readonly at: number;
  readonly reward: number;
}

/** A session is over. */
export interface EndedEvent {
  readonly type: "ended";
  readonly key: string;
  readonly at: number;
  readonly end: SessionEnd;
  readonly reward?: number | undefined;
  readonly counts: SessionCounts;
  readonly ignored: readonly string[];
}

/** A line of `sessions.jsonl`. */
export type LogEvent = OpenedEvent | AnsweredEvent | RewardEvent | EndedEvent;
