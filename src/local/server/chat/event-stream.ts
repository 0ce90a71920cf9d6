import { HttpError, toHttpError } from "../http/http-error.js";
import { errorBody } from "./openai-errors.js";

/**
 * Server-sent events. What fails before the first of them is an error as of any request, later ones are events of their
 * own. When nobody listens any more, `gone` tells those who make the events.
 */
export async function eventStream(
  events: AsyncGenerator<object, void, undefined>,
  gone: AbortController,
): Promise<Response> {
  const encoder = new TextEncoder();
  const data = (value: string) => encoder.encode(`data: ${value}\n\n`);
  let next: Promise<IteratorResult<object, void>> | undefined = Promise.resolve(await events.next());
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await (next ?? events.next());
        next = undefined;
        if (!done) return controller.enqueue(data(JSON.stringify(value)));
        controller.enqueue(data("[DONE]"));
      } catch (error) {
        const known = toHttpError(error) ?? new HttpError(500, "The answer could not be completed.");
        controller.enqueue(data(JSON.stringify(errorBody(known))));
      }
      controller.close();
    },
    cancel: () => gone.abort(),
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no" },
  });
}
