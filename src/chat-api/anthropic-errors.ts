import type { ErrorDialect, HttpError } from "../http-error.js";
import { PromptTooLongError } from "./prompt-room.js";

/** Anthropic's error object. */
export function anthropicError(error: HttpError): {
  readonly type: "error";
  readonly error: object;
} {
  return { type: "error", error: { type: typeOf(error.status), message: messageOf(error) } };
}

/** Agents look for Anthropic's own words in this error, so it uses them. */
function messageOf(error: HttpError): string {
  if (!(error instanceof PromptTooLongError)) return error.message;
  return `prompt is too long: ${error.tokens} tokens > ${error.maxTokens} maximum`;
}

/** Gives every error below Anthropic's path Anthropic's shape. */
export const anthropicDialect: ErrorDialect = {
  speaksAt: (path) => /^\/anthropic(\/|$)/.test(path),
  // Anthropic answers 400 for an invalid field.
  answer: (error) => ({
    status: error.status === 422 ? 400 : error.status,
    body: anthropicError(error),
  }),
};

function typeOf(status: number): string {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}
