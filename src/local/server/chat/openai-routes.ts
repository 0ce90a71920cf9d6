import { randomUUID } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../../transport/clock.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { ModelInput } from "../../../wire/model-input.js";
import { decodeSampleResponse } from "../../../wire/protobuf.js";
import type { SampledSequence } from "../../../wire/sampling-types.js";
import { isTinkerPath } from "../../../wire/tinker-path.js";
import type { CheckpointRecords } from "../checkpoints/find-checkpoint.js";
import type { FutureStore } from "../futures/future-store.js";
import { type BodyReader, readJsonObject } from "../http/body.js";
import { HttpError } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { App, Call } from "../http/route.js";
import { toSampleCall } from "../sampling/sample-call.js";
import type { SampleRuns } from "../sampling/sample-runs.js";
import { findSampledModel } from "../sampling/sampling-sessions.js";
import type { BaseModels } from "../sessions/base-models.js";
import { TextModels } from "./text-models.js";

const MAX_PROBLEMS = 20;

const common = {
  model: z.string(),
  max_tokens: z.number().int().positive().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  n: z.number().int().positive().max(128).nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  seed: z.number().int().nullish(),
  stream: z.boolean().nullish(),
};

const content = z.union([
  z.string(),
  z
    .array(z.object({ type: z.literal("text"), text: z.string() }))
    .transform((parts) => parts.map((part) => part.text).join("")),
]);

const chatSchema = z.object({
  ...common,
  messages: z.array(z.object({ role: z.string(), content })).min(1),
  max_completion_tokens: z.number().int().positive().nullish(),
});

const completionSchema = z.object({
  ...common,
  prompt: z.union([z.string(), z.array(z.number().int().nonnegative()).min(1)]),
});

interface Generated {
  readonly model: string;
  readonly promptTokens: number;
  readonly sequences: readonly { text: string; tokens: number; finishReason: string }[];
}

/** What chat needs of the server. */
export interface ChatServices {
  readonly baseModels: BaseModels;
  readonly store: CheckpointRecords;
  readonly clock: Clock;
  readonly limits: Limits;
  readonly reader: BodyReader;
  readonly futures: FutureStore;
  readonly sampleRuns: SampleRuns;
}

/** The OpenAI-compatible door: chat and plain completions in text, from base models and sampler checkpoints. */
export function addOpenAiRoutes(app: App, services: ChatServices): void {
  const { baseModels, clock, reader } = services;
  const texts = new TextModels();
  const secondsNow = () => Math.floor(clock.wallNow() / 1000);

  app.get("/oai/api/v1/models", (call) =>
    call.json({
      object: "list",
      data: [...baseModels.keys()].map((id) => ({ id, object: "model", created: 0, owned_by: "tinkerts" })),
    }),
  );

  app.post("/oai/api/v1/chat/completions", async (call) => {
    const request = await readRequest(call, reader, chatSchema);
    const generated = await generate(services, call, texts, {
      ...request,
      max_tokens: request.max_completion_tokens ?? request.max_tokens,
      encode: (text) => text.encodeChat(request.messages),
    });
    const head = { id: `chatcmpl-${randomUUID()}`, created: secondsNow(), model: generated.model };
    if (request.stream === true) {
      return streamed(generated, (index, text, finishReason) => ({
        ...head,
        object: "chat.completion.chunk",
        choices: [
          {
            index,
            delta: text === null ? {} : { role: "assistant", content: text },
            finish_reason: finishReason,
          },
        ],
      }));
    }
    return call.json({
      ...head,
      object: "chat.completion",
      choices: generated.sequences.map((sequence, index) => ({
        index,
        message: { role: "assistant", content: sequence.text },
        finish_reason: sequence.finishReason,
        logprobs: null,
      })),
      usage: usageOf(generated),
    });
  });

  app.post("/oai/api/v1/completions", async (call) => {
    const request = await readRequest(call, reader, completionSchema);
    const { prompt } = request;
    const generated = await generate(services, call, texts, {
      ...request,
      encode: (text) => (typeof prompt === "string" ? text.encode(prompt) : prompt),
    });
    const head = {
      id: `cmpl-${randomUUID()}`,
      created: secondsNow(),
      model: generated.model,
      object: "text_completion",
    };
    if (request.stream === true) {
      return streamed(generated, (index, text, finishReason) => ({
        ...head,
        choices: [{ index, text: text ?? "", finish_reason: finishReason, logprobs: null }],
      }));
    }
    return call.json({
      ...head,
      choices: generated.sequences.map((sequence, index) => ({
        index,
        text: sequence.text,
        finish_reason: sequence.finishReason,
        logprobs: null,
      })),
      usage: usageOf(generated),
    });
  });
}

interface TextRequest {
  readonly model: string;
  readonly max_tokens?: number | null | undefined;
  readonly temperature?: number | null | undefined;
  readonly top_p?: number | null | undefined;
  readonly n?: number | null | undefined;
  readonly stop?: string | string[] | null | undefined;
  readonly seed?: number | null | undefined;
  readonly encode: (text: Awaited<ReturnType<TextModels["get"]>>) => number[];
}

async function generate(
  services: ChatServices,
  call: Call,
  texts: TextModels,
  request: TextRequest,
): Promise<Generated> {
  const { store, baseModels, limits, futures, sampleRuns } = services;
  const identity = call.get("identity");
  const named = isTinkerPath(request.model) ? { modelPath: request.model } : { baseModel: request.model };
  const model = findSampledModel(store, baseModels, identity, named);
  const text = await texts.get(model.info);
  const prompt = request.encode(text);
  const stops = [request.stop ?? []].flat();
  const sample = endpoints.sample.request.check(
    {
      prompt: ModelInput.fromInts(prompt),
      numSamples: request.n ?? 1,
      samplingParams: {
        maxTokens: request.max_tokens ?? undefined,
        temperature: request.temperature ?? 1,
        topP: request.top_p ?? 1,
        seed: request.seed ?? undefined,
        stop: stops.length === 0 ? undefined : stops,
      },
    },
    "",
  );
  const future = sampleRuns.startAlone(identity, model, toSampleCall(sample, model.info, limits));
  const { signal } = call.req.raw;
  while (future.outcome === undefined && !signal.aborted && !futures.isClosed) {
    await futures.wait(future, 60_000, signal);
  }
  const { outcome } = future;
  if (outcome === undefined) {
    future.cancel();
    throw new HttpError(503, "The request was given up before its answer was ready.");
  }
  futures.forget(future);
  if (outcome.type === "failed") throw new HttpError(outcome.category === "user" ? 400 : 500, outcome.error);
  if (outcome.type !== "encoded") throw new Error("The engine gave no samples.");
  const { sequences } = decodeSampleResponse(outcome.bytes);
  return {
    model: request.model,
    promptTokens: prompt.length,
    sequences: sequences.map((sequence) => toText(sequence, text.decode(Array.from(sequence.tokens)), stops)),
  };
}

/** The text of a sequence, up to the stop text where there is one. */
function toText(
  sequence: SampledSequence,
  text: string,
  stops: readonly string[],
): Generated["sequences"][number] {
  const ends = stops.map((stop) => text.indexOf(stop)).filter((index) => index >= 0);
  return {
    text: ends.length === 0 ? text : text.slice(0, Math.min(...ends)),
    tokens: sequence.tokens.length,
    finishReason: sequence.stopReason === "length" ? "length" : "stop",
  };
}

function usageOf(generated: Generated) {
  const completion = generated.sequences.reduce((sum, sequence) => sum + sequence.tokens, 0);
  return {
    prompt_tokens: generated.promptTokens,
    completion_tokens: completion,
    total_tokens: generated.promptTokens + completion,
  };
}

/** 422 in the shape FastAPI gives it, one entry for each wrong field. */
async function readRequest<T extends z.ZodType>(
  call: Call,
  reader: BodyReader,
  schema: T,
): Promise<z.output<T>> {
  const parsed = schema.safeParse((await readJsonObject(call.req.raw, reader)).value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.slice(0, MAX_PROBLEMS).map(({ path, message, code }) => {
    const loc = path.map((part) => (typeof part === "number" ? part : String(part)));
    return { loc: ["body", ...loc], msg: `${loc.join(".") || "body"}: ${message}`, type: code };
  });
  throw new HttpError(422, problems);
}

/** Server-sent events as clients that asked for a stream read them; the engine's answer comes in one piece. */
function streamed(
  generated: Generated,
  chunk: (index: number, text: string | null, finishReason: string | null) => object,
): Response {
  const events = generated.sequences.flatMap((sequence, index) => [
    chunk(index, sequence.text, null),
    chunk(index, null, sequence.finishReason),
  ]);
  const body = `${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n`;
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-cache" },
  });
}
