import type { ErrorDialect, HttpError } from "../http-error.js";
import { ParamError } from "./param-error.js";

/**
 * Paths where OpenAI's endpoints are served: the hosted service's path, and the one that most tools append to a base
 * URL.
 */
export const OPENAI_PATHS = ["/oai/api/v1", "/v1"] as const;

/** OpenAI's error object, also for errors of the layers below. */
export function openAiErrorBody(error: HttpError): { readonly error: object } {
  const { message, status } = error;
  const type = status < 500 ? "invalid_request_error" : "server_error";
  return { error: { message, type, param: paramOf(error), code: codeOf(error) } };
}

/** Gives every error below OpenAI's paths OpenAI's shape. */
export const openAiDialect: ErrorDialect = {
  speaksAt: (path) => /^\/(oai|v1|tokenize|detokenize|tokenizer_info)(\/|$)/.test(path),
  // OpenAI answers 400 for an invalid field.
  answer: (error) => ({ status: error.status === 422 ? 400 : error.status, body: openAiErrorBody(error) }),
};

function codeOf(error: HttpError): string | null {
  if (error instanceof ParamError) return error.code;
  switch (error.status) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "unknown_url";
    case 422:
      return "invalid_value";
    case 429:
      return "rate_limit_exceeded";
    default:
      return null;
  }
}

function paramOf(error: HttpError): string | null {
  if (error instanceof ParamError) return error.param;
  if (typeof error.detail === "string") return null;
  return error.detail[0]?.loc.slice(1).join(".") ?? null;
}
