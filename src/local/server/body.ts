import type { Context } from "hono";
import type { z } from "zod";
import { HttpError, invalid, invalidFields } from "./http-error.js";
import type { Limits } from "./limits.js";
import { inflate, zstdDecompress } from "./zstd.js";

/** Reads the whole body, decompressed, within the server's limits. */
export async function readBody(request: Request, limits: Limits): Promise<Uint8Array> {
  const encoding = (request.headers.get("content-encoding") ?? "identity").trim().toLowerCase();
  const bytes = await readRaw(request, limits.bodyBytes);
  switch (encoding) {
    case "identity":
    case "":
      return bytes;
    case "zstd":
      return zstdDecompress(bytes, limits.decompressedBytes);
    case "gzip":
    case "deflate":
      return inflate(bytes, encoding, limits.decompressedBytes);
    default:
      throw new HttpError(
        415,
        `Content-Encoding ${encoding} is not supported; use zstd, gzip, deflate or none.`,
      );
  }
}

async function readRaw(request: Request, limitBytes: number): Promise<Uint8Array> {
  const declared = Number(request.headers.get("content-length") ?? "0");
  if (declared > limitBytes) throw tooLarge(limitBytes);
  if (request.body === null) return new Uint8Array(0);
  const parts: Uint8Array[] = [];
  let total = 0;
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    total += value.length;
    if (total > limitBytes) {
      await reader.cancel().catch(() => undefined);
      throw tooLarge(limitBytes);
    }
    parts.push(value);
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts, total);
}

function tooLarge(limitBytes: number): HttpError {
  return new HttpError(
    413,
    `The request body is larger than ${limitBytes} bytes, the limit of this server; send smaller requests.`,
  );
}

/** The parsed JSON object of a body; an empty body is an empty object. */
export async function readJsonObject(
  request: Request,
  limits: Limits,
): Promise<{ value: Record<string, unknown>; text: string }> {
  const type = contentType(request);
  if (type !== "" && type !== "application/json" && !type.endsWith("+json")) {
    throw new HttpError(415, `This endpoint takes application/json, got ${type}.`);
  }
  return parseJsonObject(await readBody(request, limits));
}

export function contentType(request: Request): string {
  return (request.headers.get("content-type") ?? "").split(";")[0]!.trim().toLowerCase();
}

export function parseJsonObject(bytes: Uint8Array): { value: Record<string, unknown>; text: string } {
  const text = new TextDecoder().decode(bytes);
  if (text.trim() === "") return { value: {}, text };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid("body", `is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid("body", "must be a JSON object");
  }
  return { value: value as Record<string, unknown>, text };
}

export function parseWith<T extends z.ZodType>(
  schema: T,
  value: unknown,
  place: "body" | "query" = "body",
): z.output<T> {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw invalidFields(parsed.error, place);
  return parsed.data;
}

/** Reads, parses and checks a JSON body. */
export async function jsonBody<T extends z.ZodType>(
  context: Context,
  limits: Limits,
  schema: T,
): Promise<z.output<T>> {
  return parseWith(schema, (await readJsonObject(context.req.raw, limits)).value);
}

export function queryOf<T extends z.ZodType>(context: Context, schema: T): z.output<T> {
  return parseWith(schema, context.req.query(), "query");
}
