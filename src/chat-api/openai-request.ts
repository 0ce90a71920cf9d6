import { z } from "zod";
import type { AnswerUsage } from "../renderers/answer-events.js";
import type { Refuse } from "./lenience.js";
import { checkBody, type JsonFields, unsupported } from "./param-error.js";

const MAX_SAMPLES = 128;
const MAX_STOPS = 4;
const MAX_TEMPERATURE = 2;

/** Largest `logprobs` or `top_logprobs` of a request. */
export const MAX_TOP_LOGPROBS = 20;

const stopText = z.string().min(1);

/** Fields shared by chat and plain completions. */
export const samplingFields = {
  model: z.string().min(1),
  temperature: z.number().min(0).max(MAX_TEMPERATURE).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_k: z.number().int().min(-1).nullish(),
  n: z.number().int().positive().max(MAX_SAMPLES).nullish(),
  stop: z
    .union([stopText, z.array(stopText).max(MAX_STOPS)], {
      error: `must be a text that is not empty, or at most ${MAX_STOPS} of them`,
    })
    .nullish(),
  // Any integer, because some clients send 64 random bits.
  seed: z.number().refine(Number.isInteger, "must be a whole number").nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
};

const samplingSchema = z.object(samplingFields);
/** The fields common to all requests, after parsing. */
export type SamplingRequest = z.output<typeof samplingSchema>;

/** Values of unsupported fields that have no effect; clients send them by default. */
const NEUTRAL: Readonly<
  Record<string, (value: unknown, body: Readonly<Record<string, unknown>>) => boolean>
> = {
  frequency_penalty: (value) => value === 0,
  presence_penalty: (value) => value === 0,
  repetition_penalty: (value) => value === 1,
  min_p: (value) => value === 0,
  logit_bias: (value) => typeof value === "object" && Object.keys(value as object).length === 0,
  best_of: (value, { n }) => value === (n ?? 1),
  suffix: (value) => value === "",
  functions: (value) => Array.isArray(value) && value.length === 0,
  function_call: (value) => value === "none",
  modalities: (value) => Array.isArray(value) && value.every((kind) => kind === "text"),
  audio: () => false,
  prediction: () => false,
  web_search_options: () => false,
};

/** Sampling settings of a request. */
export function openAiSettings(request: SamplingRequest) {
  return {
    numSamples: request.n ?? 1,
    temperature: request.temperature ?? undefined,
    topP: request.top_p ?? undefined,
    topK: request.top_k ?? undefined,
    seed: request.seed ?? undefined,
  };
}

/** OpenAI's `usage`: tokens read and written. */
export function usageJson(usage: AnswerUsage): object {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: { reasoning_tokens: reasoningTokens },
  };
}

/** Reads a request's JSON; an invalid or unsupported field is refused by its name. */
export function readFields<T extends z.ZodType>(body: JsonFields, schema: T, refuse: Refuse): z.output<T> {
  for (const [param, isNeutral] of Object.entries(NEUTRAL)) {
    const value = body[param];
    if (value === undefined || value === null || isNeutral(value, body)) continue;
    refuse(unsupported(param, "is not supported by this server."));
  }
  return checkBody(body, schema);
}
