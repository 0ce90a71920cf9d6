import type { Clock } from "../../../transport/clock.js";
import { HttpError, invalid, tooBusy } from "./http-error.js";
import type { Limits } from "./limits.js";
import { inflate, zstdDecompress, zstdHead } from "./zstd.js";

/** Enough of a body to see which request it was; a zstd block, which is the least that can be read, fits too. */
const MAX_HEAD_BYTES = 256 * 1024;

const MAX_HEAD_WAIT_MS = 250;
const MAX_DISCARD_MS = 500;
const MAX_DISCARD_BYTES = 64 * 2 ** 20;
const MAX_JSON_DEPTH = 100;

/** A body that is not read to its end, with what it begins with. */
export class BodyTooLargeError extends HttpError {
  readonly head: Uint8Array;

  constructor(message: string, head: Uint8Array) {
    super(413, message);
    this.head = head;
  }
}

/** What reading a body needs of the server. */
export interface BodyReader {
  readonly limits: Limits;
  readonly clock: Clock;
  /** Bytes of the bodies that are arriving right now, all together. */
  readonly bodies: { bytes: number };
}

/** Reads the whole body, decompressed, within the server's limits. */
export async function readBody(request: Request, server: BodyReader): Promise<Uint8Array> {
  const { limits } = server;
  const encoding = (request.headers.get("content-encoding") ?? "identity").trim().toLowerCase();
  const bytes = await readRaw(request, encoding, server);
  switch (encoding) {
    case "identity":
    case "":
      return bytes;
    case "zstd":
      return decompress(bytes, limits);
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

async function decompress(bytes: Uint8Array, limits: Limits): Promise<Uint8Array> {
  try {
    return await zstdDecompress(bytes, limits.decompressedBytes);
  } catch (error) {
    if (!(error instanceof HttpError) || error.status !== 413) throw error;
    throw new BodyTooLargeError(error.message, zstdHead(bytes.subarray(0, MAX_HEAD_BYTES)));
  }
}

async function readRaw(request: Request, encoding: string, server: BodyReader): Promise<Uint8Array> {
  if (request.body === null) return new Uint8Array(0);
  const reader = request.body.getReader();
  const parts: Uint8Array[] = [];
  try {
    const isWhole = await readParts(reader, parts, request, server);
    const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
    if (isWhole) return bytes;
    const head = bytes.subarray(0, MAX_HEAD_BYTES);
    throw new BodyTooLargeError(
      `The request body is larger than ${server.limits.bodyBytes} bytes, the limit of this server; send smaller requests.`,
      encoding === "zstd" ? zstdHead(head) : head,
    );
  } catch (error) {
    await discard(reader, server.clock);
    throw error;
  } finally {
    for (const part of parts) server.bodies.bytes -= part.length;
  }
}

/** False when the body is too large, once enough of it has come to see what it was. */
async function readParts(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  parts: Uint8Array[],
  request: Request,
  { limits, clock, bodies }: BodyReader,
): Promise<boolean> {
  const isDeclaredTooLarge = Number(request.headers.get("content-length") ?? "0") > limits.bodyBytes;
  const waitMs = isDeclaredTooLarge ? MAX_HEAD_WAIT_MS : limits.bodyIdleMs;
  let total = 0;
  for (;;) {
    const read = await inTime(reader.read(), waitMs, clock).catch(() => {
      throw new HttpError(400, `The request body ended after ${total} bytes, before it was complete.`);
    });
    if (read === "late" && isDeclaredTooLarge) return false;
    if (read === "late") {
      throw new HttpError(
        408,
        `The request body stopped after ${total} bytes: nothing came for ${waitMs / 1000} s.`,
      );
    }
    if (read.done) return !isDeclaredTooLarge;
    parts.push(read.value);
    total += read.value.length;
    bodies.bytes += read.value.length;
    if (total > limits.bodyBytes || (isDeclaredTooLarge && total >= MAX_HEAD_BYTES)) return false;
    if (bodies.bytes > limits.arrivingBytes && total < bodies.bytes) {
      throw tooBusy(
        `Bodies of ${bodies.bytes} bytes are arriving at once; at most ${limits.arrivingBytes} may. Try again in a moment.`,
      );
    }
  }
}

/** Reads what a handler has left unread: a client that still sends might not see an answer that comes before. */
export async function discardBody(request: Request, clock: Clock): Promise<void> {
  if (request.method === "GET" || request.method === "HEAD") return;
  if (request.body === null || request.body.locked || request.bodyUsed) return;
  await discard(request.body.getReader(), clock);
}

/** Not for ever: only as long as somebody with an ordinary body needs. */
async function discard(reader: ReadableStreamDefaultReader<Uint8Array>, clock: Clock): Promise<void> {
  const until = clock.now() + MAX_DISCARD_MS;
  try {
    for (let left = MAX_DISCARD_BYTES; left > 0; ) {
      const read = await inTime(reader.read(), until - clock.now(), clock);
      if (read === "late" || read.done) break;
      left -= read.value.length;
    }
    await reader.cancel();
  } catch {
    // The client is gone.
  }
}

/** What the promise gives, or "late". */
function inTime<T>(promise: Promise<T>, timeoutMs: number, clock: Clock): Promise<T | "late"> {
  return new Promise((resolve, reject) => {
    const cancelTimer = clock.setTimer(() => resolve("late"), timeoutMs, { background: true });
    promise.then(resolve, reject).finally(cancelTimer);
  });
}

/** The parsed JSON object of a body; an empty body is an empty object. */
export async function readJsonObject(
  request: Request,
  server: BodyReader,
): Promise<{ value: Record<string, unknown>; text: string }> {
  const type = contentType(request);
  if (type !== "" && type !== "application/json" && !type.endsWith("+json")) {
    throw new HttpError(415, `This endpoint takes application/json, got ${type}.`);
  }
  return parseJsonObject(await readBody(request, server), server.limits);
}

/** The media type alone, without its parameters. */
export function contentType(request: Request): string {
  return (request.headers.get("content-type") ?? "").split(";")[0]!.trim().toLowerCase();
}

function parseJsonObject(
  bytes: Uint8Array,
  limits: Limits,
): { value: Record<string, unknown>; text: string } {
  if (bytes.length > limits.jsonBytes) {
    throw new HttpError(
      413,
      `The JSON body is larger than ${limits.jsonBytes} bytes, the limit of this server; send smaller requests.`,
    );
  }
  checkDepth(bytes);
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

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPENING: readonly number[] = [0x5b, 0x7b];
const CLOSING: readonly number[] = [0x5d, 0x7d];

/** Before parsing: what is nested a million times takes the parser, and all that walks its result, very long. */
function checkDepth(bytes: Uint8Array): void {
  let depth = 0;
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index]!;
    if (byte === QUOTE) index = endOfString(bytes, index + 1);
    // Digits and commas, of which there are most, come before all of these.
    else if (byte < 0x5b) continue;
    else if (CLOSING.includes(byte)) depth -= 1;
    else if (OPENING.includes(byte)) {
      depth += 1;
      if (depth > MAX_JSON_DEPTH) throw invalid("body", `is nested more than ${MAX_JSON_DEPTH} levels deep`);
    }
  }
}

function endOfString(bytes: Uint8Array, start: number): number {
  for (let index = start; ; index += 1) {
    const byte = bytes[index];
    if (byte === QUOTE || byte === undefined) return index;
    if (byte === BACKSLASH) index += 1;
  }
}
