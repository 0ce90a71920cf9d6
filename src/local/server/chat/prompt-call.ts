import { type PlainPrompt, roomBehind } from "../../../chat-api/index.js";
import type { PreparedAnswer } from "../../../renderers/prepare-answer.js";
import type { BaseModelInfo } from "../../engine/engine.js";
import type { SampleJob } from "../sampling/sample-call.js";
import { checkTokens } from "../sessions/base-models.js";

/** Sampling settings for one prompt. */
export interface SampleDetails
  extends Omit<PlainPrompt, "prompt">,
    Partial<Pick<PreparedAnswer, "stopTokens" | "responseFormat" | "shape">> {
  readonly prompt: ArrayLike<number>;
}

/** A request in the engine's form. What is asked for beyond the room that is left is cut to it. */
export function promptCall(
  info: BaseModelInfo,
  promptParam: string,
  details: SampleDetails,
): SampleJob["call"] {
  const { stopTokens, topLogprobs = 0, scoresPrompt = false } = details;
  const room = roomBehind(details.prompt.length, info, promptParam);
  checkTokens(details.prompt, promptParam, info);
  return {
    baseModel: info.name,
    prompt: Int32Array.from(details.prompt),
    numSamples: details.numSamples ?? 1,
    maxTokens: Math.min(details.maxTokens ?? room, room),
    temperature: details.temperature ?? 1,
    topP: details.topP ?? 1,
    topK: details.topK ?? -1,
    seed: details.seed,
    ...(stopTokens === undefined ? {} : { stopTokens: [...stopTokens] }),
    stopStrings: [...details.stopTexts],
    constraint: details.shape ? { type: "shape", shape: details.shape } : details.responseFormat,
    promptLogprobs: scoresPrompt,
    topkPromptLogprobs: scoresPrompt ? Math.min(topLogprobs, info.vocabSize) : 0,
    topkSampleLogprobs: Math.min(topLogprobs, info.vocabSize),
    promptAltTokens: 0,
  };
}
