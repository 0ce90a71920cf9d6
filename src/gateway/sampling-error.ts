import { messageOf, ValidationError } from "../errors.js";
import { HttpError } from "../http-error.js";
import { ConversationError } from "../renderers/prepare-answer.js";

const RETRY_SECONDS = "1";

/** A final refusal: clients retry every other status than 400, some for minutes. */
export function finalError(message: string): HttpError {
  return new HttpError(400, message, { "x-should-retry": "false" });
}

/** A refusal that a retry may not meet: clients retry by themselves. */
export function passingError(message: string, status: 429 | 503 = 503): HttpError {
  return new HttpError(status, message, { "retry-after": RETRY_SECONDS });
}

/** The agent's error when sampling fails: 400 if it is final, 429 or 503 if a retry may succeed. */
export function samplingError(error: unknown): unknown {
  if (error instanceof HttpError || error instanceof ConversationError) return error;
  if (error instanceof ValidationError) return finalError(error.message);
  const status = (error as { readonly status?: unknown } | null)?.status;
  const message = `The model could not be sampled: ${messageOf(error)}`;
  if (status === 429) return passingError(message, 429);
  if (typeof status === "number" && status >= 400 && status < 500 && status !== 408)
    return finalError(status === 400 ? messageOf(error) : message);
  return passingError(message);
}
