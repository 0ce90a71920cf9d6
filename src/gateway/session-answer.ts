import { isDeepStrictEqual } from "node:util";
import type { Message, ToolDeclaration } from "../renderers/messages.js";
import type { ModelInput, StopReason } from "../wire/index.js";
import type { AddedAnswer } from "./conversation-tree.js";
import type { GivenAnswer } from "./same-message.js";
import type { Fork } from "./session-record.js";

/** An answer and its place in the conversation, from a model here or from another service. */
export interface AnswerFacts {
  /** Answers of one kind are numbered from 0. */
  readonly number: number;
  /** The number of its thread among those of its kind. */
  readonly thread: number;
  /** Why its thread begins; only with the first answer of a thread. */
  readonly fork?: Fork | undefined;
  /** The number of the answer before it in the conversation. */
  readonly parent?: number | undefined;
  /** The number of the first answer to the same messages. */
  readonly sameAs?: number | undefined;
  /** The number of the request that it answers. */
  readonly request: number;
  readonly model: string;
  readonly step?: number | undefined;
  readonly at: number;
  /** The messages after the last answer, as the agent sent them. */
  readonly given: readonly Message[];
  /** The answer as a message; absent for a plain prompt. */
  readonly message?: Message | undefined;
  /** The answer as the agent received it; absent for a plain prompt. */
  readonly known?: GivenAnswer | undefined;
  /** Absent where they are those of the answer before. */
  readonly tools?: readonly ToolDeclaration[] | undefined;
}

/** An answer whose tokens were sampled here. */
export interface SampledAnswer extends AnswerFacts {
  readonly kind: "chat" | "plain";
  readonly baseModel: string;
  /** Whether the prompt begins with the previous answer's prompt and tokens. */
  readonly continues: boolean;
  /** The part of the prompt after the previous answer, or the whole prompt. */
  readonly promptRest: ModelInput;
  /** The whole prompt. */
  prompt(): ModelInput;
  readonly tokens: Int32Array;
  readonly logprobs: Float32Array;
  readonly stopReason: StopReason;
}

/** An answer of another service, of which only the messages are known. */
export interface PassedAnswer extends AnswerFacts {
  readonly kind: "passed";
  readonly baseModel?: undefined;
  readonly stopReason: string;
}

/** An answer of a session with its place in the conversation, as a recorder receives it. */
export type SessionAnswer = SampledAnswer | PassedAnswer;

/** An answer of a conversation that was rendered here. */
export function chatAnswer({ node, ...place }: AddedAnswer, baseModel: string): SampledAnswer {
  const { parent, extendsParent, request, model, step, at, given, answer, tools } = node.parts;
  const { tokens, logprobs, stopReason, known } = node.parts;
  const isSameTools = parent !== undefined && isDeepStrictEqual(tools, parent.parts.tools);
  return {
    kind: "chat",
    ...place,
    ...{ request, model, step, at, given, message: answer, known, baseModel },
    ...(!isSameTools && tools.length + (parent?.parts.tools.length ?? 0) > 0 && { tools }),
    ...{ continues: extendsParent, promptRest: node.promptRest, prompt: () => node.prompt },
    ...{ tokens, logprobs, stopReason },
  };
}
