import { isSecretHeader } from "../errors.js";
import { RequestHeaders } from "./request-headers.js";
import type { HttpAnswer, OutgoingRequest, Sender } from "./sender.js";

const MAX_REDIRECTS = 10;

/** Follows redirects itself: `fetch` would send our key to any host that it is redirected to. */
export function followingRedirects(send: Sender): Sender {
  return async (request) => {
    let current: OutgoingRequest = { ...request, redirect: "manual" };
    for (let redirects = 0; ; redirects += 1) {
      const answer = await send(current);
      // Browsers hide redirects from us; there the browser follows, under the rules of CORS.
      if (answer.hidesRedirect) return send({ ...current, redirect: "follow" });
      const next = redirectOf(current, answer);
      if (next === undefined) return answer;
      answer.cancel();
      if (redirects >= MAX_REDIRECTS) throw new Error(`more than ${MAX_REDIRECTS} redirects`);
      current = next;
    }
  };
}

function redirectOf(request: OutgoingRequest, answer: HttpAnswer): OutgoingRequest | undefined {
  if (![301, 302, 303, 307, 308].includes(answer.status)) return undefined;
  const location = answer.header("location");
  if (location === null) return undefined;
  const from = new URL(request.url);
  const to = new URL(location, from);
  const headers = new RequestHeaders(request.headers);
  if (to.origin !== from.origin) {
    for (const [name] of [...headers]) if (isSecretHeader(name)) headers.delete(name);
  }
  const keepsMethod = answer.status === 307 || answer.status === 308 || request.method === "GET";
  if (keepsMethod) {
    if (request.body instanceof ReadableStream) throw new Error("a redirect cannot send a stream again");
    return { ...request, url: to.href, headers };
  }
  headers.delete("content-type");
  return { ...request, url: to.href, headers, method: "GET", body: undefined };
}
