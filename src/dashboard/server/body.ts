import type { Context } from "hono";
import { HTTPException } from "hono/http-exception";
import type { z } from "zod";

const MAX_BODY_BYTES = 1 << 20;

/** The body of a request of the page. It must be declared as JSON, which keeps other sites from sending one. */
export async function bodyOf<T>(context: Context, schema: z.ZodType<T>): Promise<T> {
  if (!/^application\/json(?:;|$)/.test(context.req.header("content-type") ?? ""))
    throw new HTTPException(415, { message: "The body must be application/json." });
  if (!(Number(context.req.header("content-length")) <= MAX_BODY_BYTES))
    throw new HTTPException(413, {
      message: `The body must say its length, ${MAX_BODY_BYTES} bytes at most.`,
    });
  const value: unknown = await context.req.json().catch(() => undefined);
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new HTTPException(400, { message: `${issue?.path.join(".") || "body"}: ${issue?.message}` });
}
