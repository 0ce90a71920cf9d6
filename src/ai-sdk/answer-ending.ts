import type { SampleResponse } from "../wire/index.js";
import { type AnswerMetadata, PROVIDER } from "./answer-metadata.js";
import type { AnswerParts } from "./answer-parts.js";
import type { PreparedCall } from "./prepare-call.js";
import type { Ending, FinishReason, Usage } from "./specification.js";

/** What is known once an answer is whole: why it ended, what it cost, and what was sampled. */
export function endingOf(call: PreparedCall, response: SampleResponse, parts: AnswerParts): Ending {
  const { tokens, logprobs, stopReason } = response.sequences[0]!;
  const { prompt } = call;
  const metadata = {
    ...(prompt.isText && { promptTokens: Array.from(prompt.toInts()) }),
    tokens: Array.from(tokens),
    ...(logprobs !== null && { logprobs: Array.from(logprobs) }),
    stopReason,
  } satisfies AnswerMetadata;
  return {
    finishReason: finishReasonOf(stopReason, parts.hasCalls),
    usage: usageOf(prompt.length, response, parts.reasoningTokens),
    providerMetadata: { [PROVIDER]: metadata },
  };
}

function finishReasonOf(raw: string, hasCalls: boolean): FinishReason {
  if (raw === "length") return { unified: "length", raw };
  if (raw !== "stop") return { unified: "other", raw };
  return { unified: hasCalls ? "tool-calls" : "stop", raw };
}

function usageOf(read: number, response: SampleResponse, reasoning: number): Usage {
  const { promptCacheHitTokens: cacheRead, sequences } = response;
  const total = sequences[0]!.tokens.length;
  return {
    inputTokens: { total: read, noCache: read - cacheRead, cacheRead, cacheWrite: undefined },
    outputTokens: { total, text: total - reasoning, reasoning },
  };
}
