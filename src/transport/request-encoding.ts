import { ValidationError } from "../errors.js";
import type { APIRequest, Query, RequestBody } from "./types.js";

/** A body as it goes out: bytes can be sent again, a stream only once. */
export interface EncodedBody {
  readonly content: Uint8Array | ReadableStream<Uint8Array> | undefined;
  readonly contentType: string | undefined;
  readonly byteLength: number;
  readonly replayable: boolean;
}

const NO_BODY: EncodedBody = { content: undefined, contentType: undefined, byteLength: 0, replayable: true };

const encoder = new TextEncoder();

/** At once, except for the kinds of bodies that only the runtime can write. */
export function encodeBody(
  request: Pick<APIRequest, "json" | "body" | "contentType">,
): EncodedBody | Promise<EncodedBody> {
  const { json, body, contentType } = request;
  if (json !== undefined) {
    if (body !== undefined) throw new ValidationError("body", "A request has either json or body, not both");
    return bytesBody(encoder.encode(JSON.stringify(json)), contentType ?? "application/json");
  }
  if (body === undefined) return NO_BODY;
  if (typeof body === "string")
    return bytesBody(encoder.encode(body), contentType ?? "text/plain;charset=UTF-8");
  if (body instanceof Uint8Array) return bytesBody(body, contentType ?? "application/octet-stream");
  if (body instanceof ReadableStream) {
    return {
      content: body,
      contentType: contentType ?? "application/octet-stream",
      byteLength: 0,
      replayable: false,
    };
  }
  return bodyByRuntime(body, contentType);
}

/** FormData, URLSearchParams, Blob: the runtime writes them and names the type, boundary included. */
async function bodyByRuntime(
  body: Exclude<RequestBody, string | ReadableStream>,
  contentType: string | undefined,
): Promise<EncodedBody> {
  const written = new Response(body as BodyInit);
  const bytes = new Uint8Array(await written.arrayBuffer());
  return bytesBody(bytes, contentType ?? written.headers.get("content-type") ?? "application/octet-stream");
}

function bytesBody(content: Uint8Array, contentType: string): EncodedBody {
  return { content, contentType, byteLength: content.byteLength, replayable: true };
}

/** True for the bodies that are sent as they are; anything else is meant as JSON. */
export function isRawBody(value: unknown): value is RequestBody {
  return (
    typeof value === "string" ||
    value instanceof Uint8Array ||
    value instanceof ArrayBuffer ||
    value instanceof Blob ||
    value instanceof FormData ||
    value instanceof URLSearchParams ||
    value instanceof ReadableStream
  );
}

const LOOPBACK = "(?:localhost|127(?:\\.\\d{1,3}){3}|::1|\\[::1\\])";
const LOOPBACK_HOST = new RegExp(`^${LOOPBACK}$`, "i");
/** This machine, as people name it without a scheme. */
const OWN_HOST = new RegExp(`^${LOOPBACK}(?=[:/]|$)`, "i");

/** Whether a host name or address always means this machine. */
export function isLoopbackHost(host: string): boolean {
  return LOOPBACK_HOST.test(host);
}

/** A base URL as requests need it: with a scheme, without the part that every path begins with. */
export function normalizeBaseURL(baseURL: string): string {
  const trimmed = baseURL.trim().replace(/(?:\/+api\/v1)?\/*$/, "");
  const complete = OWN_HOST.test(trimmed) ? `http://${trimmed}` : trimmed;
  let url: URL;
  try {
    url = new URL(complete.includes("://") ? complete : "");
  } catch {
    const example = /^[\w.-]+(?::\d+)?(?:\/|$)/.test(trimmed) ? trimmed : "host";
    throw new ValidationError(
      "baseURL",
      `baseURL must be an absolute URL such as "https://${example}", got "${baseURL}"`,
    );
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new ValidationError(
      "baseURL",
      `baseURL must begin with http:// or https://, got "${url.protocol}//"`,
    );
  }
  if (url.username !== "" || url.password !== "") {
    throw new ValidationError("baseURL", "baseURL must not hold a user name or password; use defaultHeaders");
  }
  if (url.search !== "" || url.hash !== "") {
    throw new ValidationError("baseURL", "baseURL must not have a query or a fragment");
  }
  return complete;
}

/** The address of a request: the path behind the base URL, and its query. */
export function buildURL(baseURL: string, path: string, query: Query | undefined): string {
  if (!path.startsWith("/")) {
    throw new ValidationError(
      "path",
      `path must begin with "/" and is put behind the base URL, got "${path}"`,
    );
  }
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null) continue;
    parameters.append(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const search = parameters.toString();
  if (search === "") return baseURL + path;
  return `${baseURL}${path}${path.includes("?") ? "&" : "?"}${search}`;
}
