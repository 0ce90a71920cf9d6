import { APIError } from "../errors.js";
import { NULL_BODY_STATUSES } from "./attempt.js";
import type { HttpAnswer } from "./sender.js";
import type { APIResponse } from "./types.js";

const decoder = new TextDecoder();

/** Media type of an answer, in lower case, without parameters. */
export function mediaType(contentType: string | null): string {
  return (contentType ?? "").split(";")[0]!.trim().toLowerCase();
}

/** An answer that has been read to its end. */
export function createApiResponse(answer: HttpAnswer, bytes: Uint8Array, what: string): APIResponse {
  const { status } = answer;
  const contentType = mediaType(answer.header("content-type"));
  let parsed: unknown;
  return {
    status,
    get headers() {
      return answer.headers;
    },
    contentType,
    bytes,
    json() {
      if (bytes.byteLength === 0 || parsed !== undefined) return parsed;
      const text = decoder.decode(bytes);
      try {
        parsed = JSON.parse(text) as unknown;
        return parsed;
      } catch {
        throw new APIError({
          status,
          headers: answer.headers,
          body: text.slice(0, 1000),
          message: `${what} answered ${status} with a body that is not JSON (${contentType || "no content type"}). Is the base URL that of a Tinker server?`,
        });
      }
    },
  };
}

/** The body of a failed answer: JSON where it is JSON, text where it is text. */
export function errorBody(headers: Headers, bytes: Uint8Array): unknown {
  if (bytes.byteLength === 0) return undefined;
  const text = decoder.decode(bytes);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    const contentType = mediaType(headers.get("content-type"));
    return contentType === "application/x-protobuf" || contentType === "application/octet-stream"
      ? undefined
      : text;
  }
}

/** An answer as a `Response`, for callers of any endpoint. */
export function toResponse(answer: APIResponse): Response {
  const body = NULL_BODY_STATUSES.has(answer.status) ? null : (answer.bytes as BodyInit & Uint8Array);
  return new Response(body, { status: answer.status, headers: answer.headers });
}

/** The body of an answer: JSON, text or bytes, by its content type. */
export function parseByContentType(answer: APIResponse): unknown {
  const { contentType, bytes } = answer;
  if (bytes.byteLength === 0) return undefined;
  if (contentType === "" || contentType.endsWith("/json") || contentType.endsWith("+json"))
    return answer.json();
  return contentType.startsWith("text/") ? decoder.decode(bytes) : bytes;
}
