import type { SampleResponse } from "../wire/index.js";
import { type AnswerMetadata, PROVIDER } from "./answer-metadata.js";
import type { AnswerReader } from "./answer-reader.js";
import type { PreparedCall } from "./prepare-call.js";
import type { Ending, FinishReason, Usage } from "./specification.js";

/** What is known once an answer is whole: why it ended, what it cost, and what was sampled. */
export function endingOf(call: PreparedCall, response: SampleResponse, reader: AnswerReader): Ending {
  const { tokens, logprobs, stopReason } = response.sequences[0]!;
  const { prompt } = call;
  const metadata = {
    ...(prompt.isText && { promptTokens: Array.from(prompt.toInts()) }),
    tokens: Array.from(tokens),
    ...(logprobs !== null && { logprobs: Array.from(logprobs) }),
    stopReason,
  } satisfies AnswerMetadata;
  return {
    finishReason: finishReasonOf(stopReason, reader.hasCalls),
    usage: usageOf(call, response, reader.reasoning),
    providerMetadata: { [PROVIDER]: metadata },
  };
}

function finishReasonOf(raw: string, hasCalls: boolean): FinishReason {
  if (raw === "length") return { unified: "length", raw };
  if (raw !== "stop") return { unified: "other", raw };
  return { unified: hasCalls ? "tool-calls" : "stop", raw };
}

function usageOf({ prompt, renderer }: PreparedCall, response: SampleResponse, thoughts: string): Usage {
  const { promptCacheHitTokens: cacheRead, sequences } = response;
  const total = sequences[0]!.tokens.length;
  const reasoning = Math.min(total, renderer.tokenizer.encode(thoughts, { addSpecialTokens: false }).length);
  return {
    inputTokens: {
      total: prompt.length,
      noCache: prompt.length - cacheRead,
      cacheRead,
      cacheWrite: undefined,
    },
    outputTokens: { total, text: total - reasoning, reasoning },
  };
}
