import { randomUUID } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../../transport/clock.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { decodeSampleResponse } from "../../../wire/protobuf.js";
import { isTinkerPath } from "../../../wire/records/tinker-path.js";
import { ModelInput } from "../../../wire/sampling/model-input.js";
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
import { type TextModel, textModels } from "./text-models.js";

const MAX_PROBLEMS = 20;

const commonSchema = z.object({
  model: z.string(),
  max_tokens: z.number().int().positive().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  n: z.number().int().positive().max(128).nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  seed: z.number().int().nullish(),
  stream: z.boolean().nullish(),
});

const content = z.union([
  z.string(),
  z
    .array(z.object({ type: z.literal("text"), text: z.string() }))
    .transform((parts) => parts.map((part) => part.text).join("")),
]);

const chatSchema = commonSchema.extend({
  messages: z.array(z.object({ role: z.string(), content })).min(1),
  max_completion_tokens: z.number().int().positive().nullish(),
});

const completionSchema = commonSchema.extend({
  prompt: z.union([z.string(), z.array(z.number().int().nonnegative()).min(1)]),
});

/** How an endpoint names what it answers: whole, in pieces, and the pieces' content. */
interface Wording {
  readonly idPrefix: string;
  readonly object: string;
  readonly chunkObject: string;
  readonly choice: (text: string) => object;
  /** Undefined in the last piece of a sequence. */
  readonly chunk: (text: string | undefined) => object;
}

const CHAT: Wording = {
  idPrefix: "chatcmpl",
  object: "chat.completion",
  chunkObject: "chat.completion.chunk",
  choice: (text) => ({ message: { role: "assistant", content: text } }),
  chunk: (text) => ({ delta: text === undefined ? {} : { role: "assistant", content: text } }),
};

const COMPLETION: Wording = {
  idPrefix: "cmpl",
  object: "text_completion",
  chunkObject: "text_completion",
  choice: (text) => ({ text }),
  chunk: (text) => ({ text: text ?? "" }),
};

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
  const { baseModels, store, clock, limits, reader, futures, sampleRuns } = services;
  const textModelOf = textModels();

  app.get("/oai/api/v1/models", (call) =>
    call.json({
      object: "list",
      data: [...baseModels.keys()].map((id) => ({ id, object: "model", created: 0, owned_by: "tinkerts" })),
    }),
  );

  app.post("/oai/api/v1/chat/completions", async (call) => {
    const { messages, max_completion_tokens, ...request } = await readRequest(call, reader, chatSchema);
    request.max_tokens = max_completion_tokens ?? request.max_tokens;
    return complete(call, CHAT, request, (text) => text.encodeChat(messages));
  });

  app.post("/oai/api/v1/completions", async (call) => {
    const { prompt, ...request } = await readRequest(call, reader, completionSchema);
    return complete(call, COMPLETION, request, (text) =>
      typeof prompt === "string" ? text.encode(prompt) : prompt,
    );
  });

  async function complete(
    call: Call,
    wording: Wording,
    request: z.output<typeof commonSchema>,
    encode: (text: TextModel) => number[],
  ): Promise<Response> {
    const { model: name } = request;
    const identity = call.get("identity");
    const named = isTinkerPath(name) ? { modelPath: name } : { baseModel: name };
    const model = findSampledModel(store, baseModels, identity, named);
    const text = await textModelOf(model.info);
    const prompt = encode(text);
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
    while (future.outcome === undefined && !signal.aborted && !futures.isClosed)
      await futures.wait(future, 60_000, signal);
    const { outcome } = future;
    if (outcome === undefined) {
      future.cancel();
      throw new HttpError(503, "The request was given up before its answer was ready.");
    }
    futures.forget(future);
    if (outcome.type === "failed")
      throw new HttpError(outcome.category === "user" ? 400 : 500, outcome.error);
    if (outcome.type !== "encoded") throw new Error("The engine gave no samples.");
    const { sequences } = decodeSampleResponse(outcome.bytes);
    const texts = sequences.map(({ tokens }) => untilStop(text.decode(Array.from(tokens)), stops));
    const finishReasons = sequences.map(({ stopReason }) => (stopReason === "length" ? "length" : "stop"));
    const created = Math.floor(clock.wallNow() / 1000);
    const head = { id: `${wording.idPrefix}-${randomUUID()}`, created, model: name };
    if (request.stream === true) {
      const piece = (index: number, chunk: object, finishReason: string | null) => ({
        ...head,
        object: wording.chunkObject,
        choices: [{ index, ...chunk, finish_reason: finishReason, logprobs: null }],
      });
      return streamed(
        texts.flatMap((one, index) => [
          piece(index, wording.chunk(one), null),
          piece(index, wording.chunk(undefined), finishReasons[index]!),
        ]),
      );
    }
    const completion = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
    return call.json({
      ...head,
      object: wording.object,
      choices: texts.map((one, index) => ({
        index,
        ...wording.choice(one),
        finish_reason: finishReasons[index],
        logprobs: null,
      })),
      usage: {
        prompt_tokens: prompt.length,
        completion_tokens: completion,
        total_tokens: prompt.length + completion,
      },
    });
  }
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

/** The text up to the stop text where there is one. */
function untilStop(text: string, stops: readonly string[]): string {
  const ends = stops.map((stop) => text.indexOf(stop)).filter((index) => index >= 0);
  return ends.length === 0 ? text : text.slice(0, Math.min(...ends));
}

/** Server-sent events as clients that asked for a stream read them; the engine's answer comes in one piece. */
function streamed(events: readonly object[]): Response {
  const lines = [...events.map((event) => JSON.stringify(event)), "[DONE]"];
  return new Response(lines.map((line) => `data: ${line}\n\n`).join(""), {
    headers: { "content-type": "text/event-stream", "cache-control": "no-cache" },
  });
}
