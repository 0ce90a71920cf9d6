import { APIError } from "../errors.js";
import { NULL_BODY_STATUSES } from "./attempt.js";
import type { ApiResponse } from "./types.js";

const decoder = new TextDecoder();

/** Media type of an answer, in lower case, without parameters. */
export function mediaType(headers: Headers): string {
  return (headers.get("content-type") ?? "").split(";")[0]!.trim().toLowerCase();
}

export function createApiResponse(
  status: number,
  headers: Headers,
  bytes: Uint8Array,
  what: string,
): ApiResponse {
  const contentType = mediaType(headers);
  return {
    status,
    headers,
    contentType,
    bytes,
    json() {
      if (bytes.byteLength === 0) return undefined;
      const text = decoder.decode(bytes);
      try {
        return JSON.parse(text) as unknown;
      } catch {
        throw new APIError({
          status,
          headers,
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
    const contentType = mediaType(headers);
    return contentType === "application/x-protobuf" || contentType === "application/octet-stream"
      ? undefined
      : text;
  }
}

/** The same answer as a `Response`, for callers of the escape hatch. */
export function toResponse(answer: ApiResponse): Response {
  const body = NULL_BODY_STATUSES.has(answer.status) ? null : (answer.bytes as BodyInit & Uint8Array);
  return new Response(body, { status: answer.status, headers: answer.headers });
}

/** What the escape hatch resolves to: JSON, text or bytes by the answer's own content type. */
export function parseByContentType(answer: ApiResponse): unknown {
  const { contentType, bytes } = answer;
  if (bytes.byteLength === 0) return undefined;
  if (contentType === "" || contentType.endsWith("/json") || contentType.endsWith("+json"))
    return answer.json();
  return contentType.startsWith("text/") ? decoder.decode(bytes) : bytes;
}
