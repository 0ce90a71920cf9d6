import type { Hono } from "hono";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import type { SamplingClient } from "../../clients/index.js";
import { chatStream, rendererOf } from "../../cookbook/chat/index.js";
import { messageOf } from "../../errors.js";
import type { Renderer } from "../../renderers/renderer.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import type { ChatEvent, PlaygroundRequest } from "../api.js";
import { shownMessage } from "../runs/shown-message.js";
import { shownTokens } from "../runs/shown-tokens.js";
import type { DashboardParts } from "./app.js";
import { bodyOf } from "./body.js";
import { changeable } from "./checkpoint-routes.js";
import type { TinkerServer } from "./tinker-server.js";

const MAX_MESSAGES = 200;
const MAX_SAMPLERS = 8;
const MAX_SAMPLES = 8;
const MAX_SEED = 2 ** 31 - 1;
const MAX_STOPS = 8;
const MAX_ALTERNATIVES = 10;

/** Messages of a conversation in the playground. */
export const playgroundMessages: z.ZodType<PlaygroundRequest["messages"]> = z
  .array(z.strictObject({ role: z.enum(["system", "user", "assistant"]), content: z.string() }))
  .min(1)
  .max(MAX_MESSAGES);

const chatSchema: z.ZodType<PlaygroundRequest> = z.strictObject({
  model: z.string().min(1).max(1000),
  messages: playgroundMessages,
  temperature: z.number().min(0).max(100),
  topP: z.number().gt(0).max(1).optional(),
  maxTokens: z.int().min(1).max(1_000_000).optional(),
  seed: z.int().min(0).max(MAX_SEED).optional(),
  stop: z.array(z.string().min(1).max(1000)).max(MAX_STOPS).optional(),
  prefill: z.string().max(100_000).optional(),
  numSamples: z.int().min(1).max(MAX_SAMPLES).optional(),
  alternatives: z.int().min(0).max(MAX_ALTERNATIVES).optional(),
});

/** Streams a model's answer; stops sampling when the page disconnects. */
export function addChatRoute(app: Hono, parts: DashboardParts): void {
  const samplers = new Samplers();
  app.post("/api/chat", async (context) => {
    const server = changeable(parts);
    const { model, numSamples = 1, ...request } = await bodyOf(context, chatSchema);
    const { signal } = context.req.raw;
    return streamSSE(context, async (stream) => {
      const gone = new AbortController();
      stream.onAbort(() => gone.abort());
      const either = AbortSignal.any([gone.signal, signal, parts.closed]);
      const answerOne = async (sample: number) => {
        const send = (event: ChatEvent) => stream.writeSSE({ data: JSON.stringify(event) });
        try {
          const sampler = await samplers.of(server, model);
          const seed = request.seed === undefined ? undefined : (request.seed + sample) % (MAX_SEED + 1);
          for await (const event of answer(sampler, { ...request, seed }, sample, either)) await send(event);
        } catch (error) {
          // Its server may have restarted since.
          samplers.forget(model);
          if (!gone.signal.aborted) await send({ type: "error", sample, message: messageOf(error) });
        }
      };
      await Promise.all(Array.from({ length: numSamples }, (_, sample) => answerOne(sample)));
    });
  });
}

async function* answer(
  sampler: SamplingClient,
  { messages, alternatives: topLogprobs, stop, ...settings }: Omit<PlaygroundRequest, "model" | "numSamples">,
  sample: number,
  signal: AbortSignal,
): AsyncGenerator<ChatEvent, void, undefined> {
  const startedMs = performance.now();
  const renderer = await rendererOf(sampler);
  const stops = stop === undefined ? {} : { stop: withStops(renderer, stop) };
  const options = { ...settings, ...stops, renderer, topLogprobs, signal };
  for await (const delta of chatStream(sampler, messages, options)) {
    if (delta.type === "text") yield { type: "text", sample, text: delta.text };
    if (delta.type === "thinking") yield { type: "thinking", sample, text: delta.thinking };
    if (delta.type !== "message") continue;
    const { message, tokens, logprobs, stopReason, topLogprobs: top } = delta;
    const text = withoutStop(delta.text, stop);
    yield {
      type: "answer",
      sample,
      message: shownMessage(text === delta.text ? message : { ...message, content: text }),
      text,
      tokens: shownTokens(tokens, await sampler.getTokenizer(), { logprobs, top }),
      stopReason,
      seconds: (performance.now() - startedMs) / 1000,
    };
  }
}

/** The given stop texts beside the format's own end, all as texts, because a sampler takes texts or tokens. */
function withStops(renderer: Renderer, stop: readonly string[]): string[] {
  const own: readonly (number | string)[] = renderer.stopSequences;
  const texts = own.map((sign) => (typeof sign === "number" ? renderer.tokenizer.decode([sign]) : sign));
  return [...texts, ...stop];
}

/** A stop text ends an answer and is not part of it. */
function withoutStop(text: string, stop: readonly string[] = []): string {
  const found = stop.find((sign) => text.endsWith(sign));
  return found === undefined ? text : text.slice(0, -found.length);
}

/** The samplers that were used last, so that the next question finds them open. */
class Samplers {
  readonly #open = new Map<string, Promise<SamplingClient>>();

  of(server: TinkerServer, model: string): Promise<SamplingClient> {
    const known = this.#open.get(model);
    if (known !== undefined) return known;
    const source = isTinkerPath(model) ? { modelPath: model } : { baseModel: model };
    const opening = server.service().then((service) => service.createSamplingClient(source));
    this.#open.set(model, opening);
    opening.catch(() => this.#open.delete(model));
    const [oldest] = this.#open.keys();
    if (this.#open.size > MAX_SAMPLERS && oldest !== undefined) this.#open.delete(oldest);
    return opening;
  }

  forget(model: string): void {
    this.#open.delete(model);
  }
}
