import { randomUUID } from "node:crypto";
import { z } from "zod";
import { ModelInput } from "../../wire/model-input.js";
import { decodeSampleResponse } from "../../wire/protobuf.js";
import type { SampledSequence } from "../../wire/sampling-types.js";
import { isTinkerPath } from "../../wire/tinker-path.js";
import { jsonBody } from "./body.js";
import { type App, type AppContext, type Core, weightsFor } from "./core.js";
import { HttpError, invalid } from "./http-error.js";
import { sampleSchema, toSampleCall } from "./sample-request.js";
import { TextModels } from "./text-models.js";

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

/** The OpenAI-compatible door: chat and plain completions in text, from base models and sampler checkpoints. */
export function addOpenAiRoutes(app: App, core: Core): void {
  const texts = new TextModels();

  app.get("/oai/api/v1/models", (context) =>
    context.json({
      object: "list",
      data: [...core.models.keys()].map((id) => ({ id, object: "model", created: 0, owned_by: "tinkerts" })),
    }),
  );

  app.post("/oai/api/v1/chat/completions", async (context) => {
    const request = await jsonBody(context, core, chatSchema);
    const generated = await generate(core, context, texts, {
      ...request,
      max_tokens: request.max_completion_tokens ?? request.max_tokens,
      encode: (text) => text.encodeChat(request.messages),
    });
    const head = { id: `chatcmpl-${randomUUID()}`, created: secondsNow(core), model: generated.model };
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
    return context.json({
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

  app.post("/oai/api/v1/completions", async (context) => {
    const request = await jsonBody(context, core, completionSchema);
    const { prompt } = request;
    const generated = await generate(core, context, texts, {
      ...request,
      encode: (text) => (typeof prompt === "string" ? text.encode(prompt) : prompt),
    });
    const head = {
      id: `cmpl-${randomUUID()}`,
      created: secondsNow(core),
      model: generated.model,
      object: "text_completion",
    };
    if (request.stream === true) {
      return streamed(generated, (index, text, finishReason) => ({
        ...head,
        choices: [{ index, text: text ?? "", finish_reason: finishReason, logprobs: null }],
      }));
    }
    return context.json({
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
  core: Core,
  context: AppContext,
  texts: TextModels,
  request: TextRequest,
): Promise<Generated> {
  const identity = context.get("identity");
  const isPath = isTinkerPath(request.model);
  const { info, weights } = weightsFor(
    core,
    identity,
    isPath ? null : request.model,
    isPath ? request.model : null,
  );
  const text = await texts.get(info);
  const prompt = request.encode(text);
  const stops = request.stop === null || request.stop === undefined ? [] : [request.stop].flat();
  const fields = sampleSchema.parse({
    num_samples: request.n ?? 1,
    sampling_params: {
      max_tokens: request.max_tokens ?? null,
      temperature: request.temperature ?? 1,
      top_p: request.top_p ?? 1,
      seed: request.seed ?? null,
      stop: stops.length === 0 ? null : stops,
    },
  });
  const call = toSampleCall(fields, ModelInput.fromInts(prompt), undefined, info, core.limits);
  const future = core.samplers.start({
    requestId: `sample-${randomUUID()}`,
    owner: identity.owner,
    sessionId: null,
    session: undefined,
    track: info.name,
    weights,
    call,
    targets: undefined,
  });
  const { signal } = context.req.raw;
  while (future.outcome === undefined && !signal.aborted && !core.futures.isClosed) {
    await core.futures.wait(future, 60_000, signal);
  }
  const { outcome } = future;
  if (outcome === undefined) {
    future.cancel();
    throw new HttpError(503, "The request was given up before its answer was ready.");
  }
  core.futures.forget(future);
  if (outcome.type === "failed") throw new HttpError(outcome.category === "user" ? 400 : 500, outcome.error);
  if (outcome.type !== "proto") throw invalid("model", "gave no samples");
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

function secondsNow(core: Core): number {
  return Math.floor(core.clock.wallNow() / 1000);
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
