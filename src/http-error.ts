import type { ContentfulStatusCode } from "hono/utils/http-status";
import { shortened } from "./errors.js";

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
    const short = typeof detail === "string" ? shortened(detail) : detail;
    super(typeof short === "string" ? short : short.map((problem) => problem.msg).join("; "));
    this.status = status;
    this.detail = short;
    this.headers = headers;
  }
}

/** A problem with one field, in FastAPI's format. */
export interface FieldProblem {
  readonly loc: readonly (string | number)[];
  readonly msg: string;
  readonly type: string;
}

/** How errors are worded below some paths, whose clients expect a shape of their own. */
export interface ErrorDialect {
  speaksAt(path: string): boolean;
  answer(error: HttpError): { readonly status: ContentfulStatusCode; readonly body: object };
}
