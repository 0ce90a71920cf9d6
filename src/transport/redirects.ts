import { isSecretHeader } from "../errors.js";

const MOST_REDIRECTS = 10;

export interface OutgoingRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: Headers;
  readonly body: Uint8Array | ReadableStream<Uint8Array> | undefined;
  readonly signal: AbortSignal;
}

/** Sends and follows redirects itself: `fetch` would carry our key along to whatever host it is sent to. */
export async function fetchFollowing(fetchFn: typeof fetch, request: OutgoingRequest): Promise<Response> {
  let current = request;
  for (let redirects = 0; ; redirects += 1) {
    const response = await fetchOnce(fetchFn, current, "manual");
    // Browsers hide redirects from us; there the browser follows, under the rules of CORS.
    if (response.type === "opaqueredirect") return fetchOnce(fetchFn, current, "follow");
    const next = redirectOf(current, response);
    if (next === undefined) return response;
    await response.body?.cancel();
    if (redirects >= MOST_REDIRECTS) throw new Error(`more than ${MOST_REDIRECTS} redirects`);
    current = next;
  }
}

export function fetchOnce(
  fetchFn: typeof fetch,
  request: OutgoingRequest,
  redirect: "manual" | "follow",
): Promise<Response> {
  const { url, method, headers, body, signal } = request;
  const init: RequestInit & { duplex?: "half" } = { method, headers, signal, redirect };
  if (body !== undefined) {
    init.body = body as Exclude<RequestInit["body"], undefined>;
    if (body instanceof ReadableStream) init.duplex = "half";
  }
  return fetchFn(url, init);
}

function redirectOf(request: OutgoingRequest, response: Response): OutgoingRequest | undefined {
  const location = response.headers.get("location");
  if (![301, 302, 303, 307, 308].includes(response.status) || location === null) return undefined;
  const from = new URL(request.url);
  const to = new URL(location, from);
  const headers = new Headers(request.headers);
  if (to.origin !== from.origin) {
    for (const name of [...headers.keys()]) if (isSecretHeader(name)) headers.delete(name);
  }
  const keepsMethod = response.status === 307 || response.status === 308 || request.method === "GET";
  if (keepsMethod) {
    if (request.body instanceof ReadableStream) throw new Error("a redirect cannot send a stream again");
    return { ...request, url: to.href, headers };
  }
  headers.delete("content-type");
  return { ...request, url: to.href, headers, method: "GET", body: undefined };
}
