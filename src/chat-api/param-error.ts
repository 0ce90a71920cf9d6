import type { ContentfulStatusCode } from "hono/utils/http-status";
import { z } from "zod";
import { TinkerError } from "../errors.js";
import { HttpError } from "../http-error.js";
import { ConversationError, type ConversationField } from "../renderers/prepare-answer.js";

const MAX_PROBLEMS = 5;
/** Longest list of token ids, and longest list of anything else. */
const MAX_TOKENS = 2 ** 18;
const MAX_ITEMS = 2 ** 14;

/** Functions that may be declared in one request. */
export const MAX_TOOLS = 512;

/** The name of a function. */
export const toolName = z
  .string()
  .regex(/^[\w.-]{1,128}$/, "must be 1 to 128 letters, digits, '_', '-' or '.'");

/** A JSON object as it was sent, with the fields that are read before the schema checks it. */
export interface JsonFields {
  readonly [name: string]: unknown;
  readonly type?: unknown;
  readonly role?: unknown;
  readonly content?: unknown;
  readonly messages?: unknown;
  readonly tools?: unknown;
}

/** A refusal that names the parameter and has a code; each API writes it in its own shape. */
export class ParamError extends HttpError {
  readonly code: string;
  readonly param: string | null;

  constructor(status: ContentfulStatusCode, code: string, message: string, param: string | null = null) {
    super(status, message);
    this.code = code;
    this.param = param;
  }
}

/** An error for a feature that this server does not have. */
export function unsupported(param: string, why: string): ParamError {
  return new ParamError(400, "unsupported_parameter", `${param} ${why}`, param);
}

/** An error for a value that is not accepted. */
export function invalidValue(param: string, message: string): ParamError {
  return new ParamError(400, "invalid_value", message, param);
}

/** Replaces invalid elements by empty objects before the schema reads the list. */
function checkLists(value: unknown, param: string): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    const most = typeof value[0] === "number" ? MAX_TOKENS : MAX_ITEMS;
    if (value.length > most)
      throw invalidValue(param, `${param} has a list of ${value.length} items; at most ${most} are read.`);
  }
  for (const item of Object.values(value)) checkLists(item, param);
}

/** Parses a body with its schema; an invalid field is refused by its name. */
export function checkBody<T extends z.ZodType>(body: JsonFields, schema: T): z.output<T> {
  for (const [param, value] of Object.entries(body)) checkLists(value, param);
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.slice(0, MAX_PROBLEMS).map(({ path, message }) => ({
    param: path.map(String).join("."),
    message,
  }));
  const message = problems.map((problem) => `${problem.param || "body"}: ${problem.message}`).join("; ");
  const { param } = problems[0]!;
  const isMissing = param !== "" && !param.includes(".") && body[param] === undefined;
  if (isMissing) throw new ParamError(400, "missing_required_parameter", message, param);
  throw invalidValue(param, message);
}

/** An API's names for the fields of a conversation. */
export type ParamNames = Readonly<Record<ConversationField, string>>;

/** Prepares a conversation; errors use the field names of the request's API. */
export function inWordsOf<T>(names: ParamNames, model: string, prepare: () => T): T {
  try {
    return prepare();
  } catch (error) {
    const worded = wordedError(error, names);
    if (worded !== error || !(error instanceof TinkerError)) throw worded;
    throw new HttpError(422, `Model ${model} cannot chat: ${error.message}`);
  }
}

/** Rewords an error about a conversation for the request's API; returns other errors unchanged. */
export function wordedError(error: unknown, names: ParamNames): unknown {
  return error instanceof ConversationError ? worded(error, names) : error;
}

/** Rewords a `ConversationError` for the request's API. */
export function worded(error: ConversationError, names: ParamNames): ParamError {
  const param = names[error.field];
  if (error.isUnsupported) return unsupported(param, error.why);
  return invalidValue(param, `${param} ${error.why}`);
}
