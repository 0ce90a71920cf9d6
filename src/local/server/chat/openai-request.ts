import { z } from "zod";
import { type BodyReader, readJsonObject } from "../http/body.js";
import type { Call } from "../http/route.js";
import { invalidValue, OpenAiError, unsupported } from "./openai-errors.js";

const MAX_SAMPLES = 128;
const MAX_STOPS = 4;
const MAX_PROBLEMS = 5;
const MAX_TEMPERATURE = 2;

/** How many of the likeliest tokens may be asked for at each position. */
export const MAX_TOP_LOGPROBS = 20;

const stopText = z.string().min(1);

/** What requests for chats and for plain completions have in common. */
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
  // Not a safe integer: some clients take 64 bits of chance.
  seed: z.number().refine(Number.isInteger, "must be a whole number").nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
};

const samplingSchema = z.object(samplingFields);
/** A request as it was read, as far as all requests go. */
export type SamplingRequest = z.output<typeof samplingSchema>;

/** The values of what is not done with which nothing is asked for; clients send them unasked. */
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
  store: (value) => value === false,
};

/** Reads a request's JSON; what is wrong in it, or not done by this server, is refused by its name. */
export async function readRequest<T extends z.ZodType>(
  call: Call,
  reader: BodyReader,
  schema: T,
): Promise<z.output<T>> {
  const { value: body } = await readJsonObject(call.req.raw, reader);
  for (const [param, isNeutral] of Object.entries(NEUTRAL)) {
    const value = body[param];
    if (value === undefined || value === null || isNeutral(value, body)) continue;
    throw unsupported(param, "is not supported by this server.");
  }
  return checkBody(body, schema);
}

/** A body as its schema reads it; what is wrong in it is refused by its name. */
export function checkBody<T extends z.ZodType>(
  body: Readonly<Record<string, unknown>>,
  schema: T,
): z.output<T> {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.slice(0, MAX_PROBLEMS).map(({ path, message }) => ({
    param: path.map(String).join("."),
    message,
  }));
  const message = problems.map((problem) => `${problem.param || "body"}: ${problem.message}`).join("; ");
  const { param } = problems[0]!;
  const isMissing = param !== "" && !param.includes(".") && body[param] === undefined;
  if (isMissing) throw new OpenAiError(400, "missing_required_parameter", message, param);
  throw invalidValue(param, message);
}
