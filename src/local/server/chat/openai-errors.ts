import type { ContentfulStatusCode } from "hono/utils/http-status";
import { type ErrorDialect, HttpError } from "../http/http-error.js";

/** Where OpenAI's endpoints are: the hosted service's path, and the one that most tools put behind an address. */
export const OPENAI_PATHS = ["/oai/api/v1", "/v1"] as const;

/** An error with the code that OpenAI's clients look at. */
export class OpenAiError extends HttpError {
  readonly code: string;
  readonly param: string | null;

  constructor(
    status: ContentfulStatusCode,
    code: string,
    message: string,
    param: string | null = null,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(status, message, headers);
    this.code = code;
    this.param = param;
  }
}

/** For what this server does not do, rather than leaving it out in silence. */
export function unsupported(param: string, why: string): OpenAiError {
  return new OpenAiError(400, "unsupported_parameter", `${param} ${why}`, param);
}

/** For a value that cannot be taken. */
export function invalidValue(param: string, message: string): OpenAiError {
  return new OpenAiError(400, "invalid_value", message, param);
}

/** OpenAI's error object, also for errors of the layers below. */
export function errorBody(error: HttpError): { readonly error: object } {
  const { message, status } = error;
  const type = status < 500 ? "invalid_request_error" : "server_error";
  return { error: { message, type, param: paramOf(error), code: codeOf(error) } };
}

/** OpenAI's shape for everything below its paths. */
export const openAiDialect: ErrorDialect = {
  speaksAt: (path) => /^\/(oai|v1|tokenize|detokenize|tokenizer_info)(\/|$)/.test(path),
  // A field that is wrong is a 400 with OpenAI.
  answer: (error) => ({ status: error.status === 422 ? 400 : error.status, body: errorBody(error) }),
};

function codeOf(error: HttpError): string | null {
  if (error instanceof OpenAiError) return error.code;
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
  if (error instanceof OpenAiError) return error.param;
  if (typeof error.detail === "string") return null;
  return error.detail[0]?.loc.slice(1).join(".") ?? null;
}
