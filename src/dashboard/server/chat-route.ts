import type { Hono } from "hono";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import type { SamplingClient } from "../../clients/index.js";
import { chatStream } from "../../cookbook/chat/index.js";
import { messageOf } from "../../errors.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import type { ChatEvent, ChatRequest } from "../api.js";
import { shownMessage } from "../runs/shown-message.js";
import { shownTokens } from "../runs/shown-tokens.js";
import type { DashboardParts } from "./app.js";
import { bodyOf } from "./body.js";
import { changeable } from "./checkpoint-routes.js";
import type { TinkerServer } from "./tinker-server.js";

const MAX_MESSAGES = 200;
const MAX_SAMPLERS = 8;

const chatSchema: z.ZodType<ChatRequest> = z.strictObject({
  model: z.string().min(1).max(1000),
  messages: z
    .array(z.strictObject({ role: z.enum(["system", "user", "assistant"]), content: z.string() }))
    .min(1)
    .max(MAX_MESSAGES),
  temperature: z.number().min(0).max(100),
  topP: z.number().gt(0).max(1).optional(),
  maxTokens: z.int().min(1).max(1_000_000).optional(),
  seed: z
    .int()
    .min(0)
    .max(2 ** 31 - 1)
    .optional(),
});

/** Lets a model answer, in pieces as they come; the page that goes away makes it stop. */
export function addChatRoute(app: Hono, parts: DashboardParts): void {
  const samplers = new Samplers();
  app.post("/api/chat", async (context) => {
    const server = changeable(parts);
    const { model, messages, ...options } = await bodyOf(context, chatSchema);
    const { signal } = context.req.raw;
    return streamSSE(context, async (stream) => {
      const send = (event: ChatEvent) => stream.writeSSE({ data: JSON.stringify(event) });
      const gone = new AbortController();
      stream.onAbort(() => gone.abort());
      const startedMs = performance.now();
      try {
        const sampler = await samplers.of(server, model);
        const either = AbortSignal.any([gone.signal, signal, parts.closed]);
        for await (const delta of chatStream(sampler, messages, { ...options, signal: either })) {
          if (delta.type === "text") await send({ type: "text", text: delta.text });
          if (delta.type === "thinking") await send({ type: "thinking", text: delta.thinking });
          if (delta.type !== "message") continue;
          const { message, text, tokens, logprobs, stopReason } = delta;
          const tokenizer = await sampler.getTokenizer();
          await send({
            type: "answer",
            message: shownMessage(message),
            text,
            tokens: shownTokens(tokens, tokenizer, { logprobs }),
            stopReason,
            seconds: (performance.now() - startedMs) / 1000,
          });
        }
      } catch (error) {
        // Its server may have begun anew since.
        samplers.forget(model);
        if (!gone.signal.aborted) await send({ type: "error", message: messageOf(error) });
      }
    });
  });
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
