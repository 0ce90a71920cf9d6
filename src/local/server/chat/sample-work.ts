import type { BaseModelInfo, JsonConstraint } from "../../engine/engine.js";
import type { SampleWork } from "../sampling/sample-call.js";
import { checkTokens } from "../sessions/base-models.js";
import { invalidValue, OpenAiError } from "./openai-errors.js";
import type { SamplingRequest } from "./openai-request.js";

/** No vocabulary has longer tokens but for runs of one character. */
const MAX_CHARACTERS_PER_TOKEN = 256;

/** Refuses a text that is too long whatever its tokens, before they are counted. */
export function checkTextLength(length: number, info: BaseModelInfo, param: string): void {
  if (length > info.maxContextLength * MAX_CHARACTERS_PER_TOKEN)
    throw tooLong(info, param, `${length} characters`);
}

function tooLong(info: BaseModelInfo, param: string, given: string): OpenAiError {
  const message = `${info.name} reads at most ${info.maxContextLength} tokens, and ${param} has ${given}.`;
  return new OpenAiError(400, "context_length_exceeded", message, param);
}

/** What is asked besides the settings that all requests share. */
export interface SampleDetails {
  readonly prompt: readonly number[];
  /** The request's field that the prompt came in. */
  readonly promptParam: string;
  readonly maxTokens: number | undefined;
  /** Absent: the model's own. */
  readonly stopTokens?: readonly number[] | undefined;
  readonly stopTexts: readonly string[];
  readonly topLogprobs: number;
  readonly scoresPrompt: boolean;
  readonly constraint?: JsonConstraint | undefined;
}

/** A request in the engine's form. What is asked for beyond the room that is left is cut to it. */
export function sampleWork(
  request: SamplingRequest,
  info: BaseModelInfo,
  details: SampleDetails,
): SampleWork {
  const { promptParam, stopTokens, topLogprobs, scoresPrompt } = details;
  const { length } = details.prompt;
  if (length === 0) throw invalidValue(promptParam, `${promptParam} has no tokens.`);
  if (length > info.maxContextLength) throw tooLong(info, promptParam, `${length} tokens`);
  checkTokens(details.prompt, promptParam, info);
  // The last token is not read again, so it needs no place in the context.
  const room = info.maxContextLength + 1 - length;
  return {
    baseModel: info.name,
    prompt: Int32Array.from(details.prompt),
    numSamples: request.n ?? 1,
    maxTokens: Math.min(details.maxTokens ?? room, room),
    temperature: request.temperature ?? 1,
    topP: request.top_p ?? 1,
    topK: request.top_k ?? -1,
    seed: request.seed ?? undefined,
    ...(stopTokens === undefined ? {} : { stopTokens: [...stopTokens] }),
    stopStrings: [...details.stopTexts],
    constraint: details.constraint,
    promptLogprobs: scoresPrompt,
    topkPromptLogprobs: scoresPrompt ? Math.min(topLogprobs, info.vocabSize) : 0,
    topkSampleLogprobs: Math.min(topLogprobs, info.vocabSize),
    promptAltTokens: 0,
  };
}
