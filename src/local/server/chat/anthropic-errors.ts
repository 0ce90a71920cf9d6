import { type ErrorDialect, HttpError } from "../http/http-error.js";
import { OpenAiError } from "./openai-errors.js";

/** What the chats below call otherwise. */
const WORDS: Readonly<Record<string, string>> = {
  reasoning_effort: "output_config.effort",
  response_format: "output_config.format",
  "chat_template_kwargs.enable_thinking": "thinking",
};

/** Anthropic's error object. */
export function anthropicError({ status, message }: HttpError): {
  readonly type: "error";
  readonly error: object;
} {
  return { type: "error", error: { type: typeOf(status), message } };
}

/** Anthropic's shape for everything below its path. */
export const anthropicDialect: ErrorDialect = {
  speaksAt: (path) => /^\/anthropic(\/|$)/.test(path),
  // A field that is wrong is a 400 with Anthropic.
  answer: (error) => {
    const status = error.status === 422 ? 400 : error.status;
    return { status, body: anthropicError(new HttpError(status, error.message)) };
  },
};

/** Does something in the words of OpenAI's requests; what it refuses is named as Anthropic names it. */
export function inAnthropicWords<T>(action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!(error instanceof OpenAiError) || error.param === null) throw error;
    const named = WORDS[error.param];
    if (named === undefined) throw error;
    throw new OpenAiError(error.status, error.code, error.message.replace(error.param, named), named);
  }
}

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
