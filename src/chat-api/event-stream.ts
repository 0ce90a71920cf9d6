import type { Env } from "hono";
import { HttpError } from "../http-error.js";
import type { ChatHost } from "./chat-host.js";
import { openAiErrorBody } from "./openai-errors.js";

/** A streamed answer and how its events are written. */
export interface StreamedAnswer {
  readonly events: AsyncGenerator<object, void, undefined>;
  /** Text of one event in the stream. */
  write(event: object): string;
  /** Written when the client has waited long for the next event. */
  waiting(): string;
  /** Error event that ends the stream. */
  failed(error: HttpError): string;
  /** Written after the last event. */
  readonly end: string;
}

/** Clients give up on a stream that is silent for some minutes, and proxies often after one. */
export const MAX_SILENCE_MS = 15_000;

/** An event that has only data, as in most of OpenAI's streams. */
export const dataEvent = (value: object | string): string =>
  `data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`;

/** An event with its type as its name. */
export const namedEvent = (value: object): string =>
  `event: ${(value as { readonly type: string }).type}\n${dataEvent(value)}`;

/** A stream of chat completions or completions. */
export function openAiStream(events: StreamedAnswer["events"]): StreamedAnswer {
  return {
    events,
    write: dataEvent,
    waiting: () => ": waiting for the model\n\n",
    failed: (error) => dataEvent(openAiErrorBody(error)),
    end: dataEvent("[DONE]"),
  };
}

/**
 * Streams server-sent events. A failure before the first event, and before the client has waited long, is an error with
 * a status; later failures are events. When the client disconnects, `gone` stops the source of the events.
 */
export async function eventStream<E extends Env>(
  { toHttpError, clock }: Pick<ChatHost<E>, "toHttpError" | "clock">,
  answer: StreamedAnswer,
  gone: AbortController,
): Promise<Response> {
  const { events } = answer;
  const encoder = new TextEncoder();
  let next: Promise<IteratorResult<object, void>> | undefined;
  /** The next event; undefined if it does not arrive soon. */
  const soon = () => {
    next ??= events.next();
    let cancel = () => {};
    const silence = new Promise<undefined>((resolve) => {
      cancel = clock.setTimer(() => resolve(undefined), MAX_SILENCE_MS);
    });
    return Promise.race([next, silence]).finally(cancel);
  };
  let first: IteratorResult<object, void> | undefined | "taken" = await soon();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const send = (text: string) => {
        if (text !== "") controller.enqueue(encoder.encode(text));
      };
      try {
        const result = first === "taken" ? await soon() : first;
        first = "taken";
        if (result === undefined) return send(answer.waiting());
        next = undefined;
        if (!result.done) return send(answer.write(result.value));
        send(answer.end);
      } catch (error) {
        send(answer.failed(toHttpError(error) ?? new HttpError(500, "The answer could not be completed.")));
      }
      controller.close();
    },
    cancel: () => gone.abort(),
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no" },
  });
}
