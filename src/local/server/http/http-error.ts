import type { ContentfulStatusCode } from "hono/utils/http-status";
import { ValidationError } from "../../../errors.js";
import { HttpError } from "../../../http-error.js";
import { inWireWords } from "../../../wire/endpoints/field-names.js";
import { CancelledError, EngineInputError, EngineLostError } from "../../engine/engine.js";
import { NameTakenError } from "../../store/checkpoint-store.js";
import { whyUnwritable } from "../../store/data-folder.js";

export { type ErrorDialect, HttpError } from "../../../http-error.js";

/** The part of a request that a field stands in. */
export type FieldPlace = "body" | "query";

/** A conflict that the same request, sent again, would meet again. */
export function conflict(message: string): HttpError {
  return new HttpError(409, message, { "x-should-retry": "false" });
}

/** Whether a request comes from the official Python package; every version says so. */
export function isPythonSdk(request: Request): boolean {
  return /^(Async)?Tinker\/Python /.test(request.headers.get("user-agent") ?? "");
}

/**
 * The status that tells a client what to do. The Python package ignores `x-should-retry` and silently repeats a request
 * for five minutes after a 409 or 5xx, so it gets a 400 where a repeat is useless.
 */
export function statusFor({ status, headers }: HttpError, request: Request): ContentfulStatusCode {
  return headers["x-should-retry"] === "false" && isPythonSdk(request) ? 400 : status;
}

/** Too much at once; clients answer it by backing off. */
export function tooBusy(message: string, retryAfterSeconds = 1): HttpError {
  return new HttpError(429, message, { "retry-after": String(retryAfterSeconds) });
}

/** An error for one field, named by its path in camelCase, such as `data[3].lossFnInputs.weights`. */
export function invalid(field: string, message: string): ValidationError {
  return new ValidationError(field, `${field} ${message}`);
}

/** 422 in the words of the wire. */
export function fieldError({ field, message }: ValidationError, place: FieldPlace): HttpError {
  const path = inWireWords(field)
    .split(/[.[\]]+/)
    .filter((part) => part !== "")
    .map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  return new HttpError(422, [{ loc: [place, ...path], msg: inWireWords(message), type: "value_error" }]);
}

/** Error message and category of a failed operation, for its client. */
export function describeFailure(error: unknown): { error: string; category: "user" | "server" } {
  const known = toHttpError(error);
  if (known !== undefined) return { error: known.message, category: known.status < 500 ? "user" : "server" };
  if (isNamed(error, "CancelledError", CancelledError)) return { error: error.message, category: "user" };
  return { error: error instanceof Error ? error.message : String(error), category: "server" };
}

/** Turns errors of the layers below into answers; undefined for unexpected ones. */
export function toHttpError(error: unknown): HttpError | undefined {
  if (error instanceof HttpError) return error;
  if (error instanceof ValidationError) return fieldError(error, "body");
  if (isNamed(error, "EngineInputError", EngineInputError))
    return new HttpError(422, inWireWords(error.message));
  if (isNamed(error, "EngineLostError", EngineLostError)) return new HttpError(503, error.message);
  if (error instanceof NameTakenError) return conflict(error.message);
  const reason = whyUnwritable(error);
  if (reason === undefined) return undefined;
  // Without the paths of the server.
  const message = `The server's data folder cannot be written: ${reason}. What was saved before is intact; try again once the disk can be written.`;
  return new HttpError(507, message, { "x-should-retry": "false" });
}

/** Errors that crossed a worker boundary may keep only their name. */
function isNamed<T extends Error>(
  error: unknown,
  name: string,
  kind: new (...args: never[]) => T,
): error is T {
  return error instanceof kind || (error instanceof Error && error.name === name);
}
