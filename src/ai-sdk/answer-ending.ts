import type { Answers, AnswerUsage } from "../renderers/answer-events.js";
import type { PreparedAnswer } from "../renderers/prepare-answer.js";
import { type AnswerMetadata, PROVIDER } from "./answer-metadata.js";
import type { AnswerEnding, FinishReason, Usage } from "./specification.js";

/** The end of a whole answer: why it ended, its usage, and the sampled tokens. */
export function endingOf({ prompt }: PreparedAnswer, answers: Answers, hasCalls: boolean): AnswerEnding {
  const { tokens, logprobs, stopReason } = answers.response!.sequences[0]!;
  const metadata = {
    ...(prompt.isText && { promptTokens: Array.from(prompt.toInts()) }),
    tokens: Array.from(tokens),
    ...(logprobs !== null && { logprobs: Array.from(logprobs) }),
    stopReason,
  } satisfies AnswerMetadata;
  return {
    finishReason: finishReasonOf(stopReason, hasCalls),
    usage: usageOf(answers.usage),
    providerMetadata: { [PROVIDER]: metadata },
  };
}

function finishReasonOf(raw: string, hasCalls: boolean): FinishReason {
  if (raw === "length") return { unified: "length", raw };
  if (raw !== "stop") return { unified: "other", raw };
  return { unified: hasCalls ? "tool-calls" : "stop", raw };
}

function usageOf(usage: AnswerUsage): Usage {
  const { promptTokens: read, cachedTokens: cacheRead } = usage;
  const { completionTokens: total, reasoningTokens: reasoning } = usage;
  return {
    inputTokens: { total: read, noCache: read - cacheRead, cacheRead, cacheWrite: undefined },
    outputTokens: { total, text: total - reasoning, reasoning },
  };
}
