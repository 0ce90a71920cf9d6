import type { ContentfulStatusCode } from "hono/utils/http-status";
import { z } from "zod";
import { ValidationError } from "../../errors.js";
import { CancelledError, EngineInputError } from "../engine/engine.js";
import { NameTakenError } from "../store/checkpoint-store.js";
import { whyUnwritable } from "../store/data-folder.js";

/** An answer other than 200, thrown from anywhere below a route. */
export class HttpError extends Error {
  override name = "HttpError";
  readonly status: ContentfulStatusCode;
  readonly detail: string | FieldProblem[];
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: ContentfulStatusCode,
    detail: string | FieldProblem[],
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(typeof detail === "string" ? detail : detail.map((problem) => problem.msg).join("; "));
    this.status = status;
    this.detail = detail;
    this.headers = headers;
  }
}

export interface FieldProblem {
  readonly loc: readonly (string | number)[];
  readonly msg: string;
  readonly type: string;
}

/** 422 for one field; the field is a path such as `data[3].loss_fn_inputs.weights`. */
export function invalid(
  field: string,
  message: string,
  place: "body" | "query" | "path" = "body",
): HttpError {
  return new HttpError(422, [
    { loc: [place, ...splitField(field)], msg: `${field} ${message}`, type: "value_error" },
  ]);
}

function splitField(field: string): (string | number)[] {
  return field
    .split(/[.[\]]+/)
    .filter((part) => part !== "")
    .map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

/** 422 in the shape FastAPI gives it, one entry for each wrong field. */
export function invalidFields(error: z.ZodError, place: "body" | "query"): HttpError {
  const problems = error.issues.slice(0, 20).map((issue) => {
    const path = issue.path.map((part) => (typeof part === "number" ? part : String(part)));
    const name = path.length === 0 ? place : path.join(".");
    return { loc: [place, ...path], msg: `${name}: ${issue.message}`, type: issue.code };
  });
  return new HttpError(422, problems);
}

/** What a failed operation tells its client, and whose fault it was. */
export function describeFailure(error: unknown): { error: string; category: "user" | "server" } {
  if (error instanceof HttpError) {
    return { error: error.message, category: error.status < 500 ? "user" : "server" };
  }
  if (
    isNamed(error, "EngineInputError", EngineInputError) ||
    isNamed(error, "CancelledError", CancelledError) ||
    error instanceof NameTakenError ||
    error instanceof ValidationError
  ) {
    return { error: error.message, category: "user" };
  }
  const refusedByDisk = diskError(error);
  if (refusedByDisk !== undefined) return { error: refusedByDisk.message, category: "server" };
  return { error: error instanceof Error ? error.message : String(error), category: "server" };
}

/** 507 when the data folder could not be written; says so without naming paths of the server. */
function diskError(error: unknown): HttpError | undefined {
  const reason = whyUnwritable(error);
  if (reason === undefined) return undefined;
  const message = `The server's data folder cannot be written: ${reason}. What was saved before is whole; try again when that is mended.`;
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

/** Turns errors of the layers below into answers; undefined for those nobody foresaw. */
export function toHttpError(error: unknown): HttpError | undefined {
  if (error instanceof HttpError) return error;
  if (error instanceof z.ZodError) return invalidFields(error, "body");
  if (error instanceof ValidationError) {
    const field = snakeCase(error.field);
    const message = error.message.replaceAll(error.field, field);
    return new HttpError(422, [{ loc: ["body", ...splitField(field)], msg: message, type: "value_error" }]);
  }
  if (isNamed(error, "EngineInputError", EngineInputError)) return new HttpError(422, error.message);
  if (error instanceof NameTakenError)
    return new HttpError(409, error.message, { "x-should-retry": "false" });
  return diskError(error);
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
