import { HttpError, toHttpError } from "../http/http-error.js";
import { errorBody } from "./openai-errors.js";

/** How the events of a stream are written. */
export interface EventWords {
  /** What goes over the wire for an event. */
  event(value: object): string;
  error(error: HttpError): string;
  /** Behind the last event. */
  readonly end: string;
}

const data = (value: string) => `data: ${value}\n\n`;

const OPENAI_WORDS: EventWords = {
  event: (value) => data(JSON.stringify(value)),
  error: (error) => data(JSON.stringify(errorBody(error))),
  end: data("[DONE]"),
};

/**
 * Server-sent events. What fails before the first of them is an error as of any request, later ones are events of their
 * own. When nobody listens any more, `gone` tells those who make the events.
 */
export async function eventStream(
  events: AsyncGenerator<object, void, undefined>,
  gone: AbortController,
  words: EventWords = OPENAI_WORDS,
): Promise<Response> {
  const encoder = new TextEncoder();
  let next: Promise<IteratorResult<object, void>> | undefined = Promise.resolve(await events.next());
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await (next ?? events.next());
        next = undefined;
        if (!done) return controller.enqueue(encoder.encode(words.event(value)));
        controller.enqueue(encoder.encode(words.end));
      } catch (error) {
        const known = toHttpError(error) ?? new HttpError(500, "The answer could not be completed.");
        controller.enqueue(encoder.encode(words.error(known)));
      }
      controller.close();
    },
    cancel: () => gone.abort(),
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no" },
  });
}
