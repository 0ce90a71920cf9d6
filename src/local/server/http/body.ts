import type { Clock } from "../../../transport/clock.js";
import { HttpError, invalid, tooBusy } from "./http-error.js";
import type { Limits } from "./limits.js";
import type { OwnerShares } from "./owner-shares.js";
import type { Call } from "./route.js";
import { inflate, zstdDecompress, zstdHead } from "./zstd.js";

/** Enough of a body to see which request it was; a zstd block, which is the least that can be read, fits too. */
const MAX_HEAD_BYTES = 256 * 1024;

const MAX_HEAD_WAIT_MS = 250;
const MAX_DISCARD_MS = 500;
const MAX_DISCARD_BYTES = 64 * 2 ** 20;
const MAX_JSON_DEPTH = 100;
/** An object of more keys is a hash table, which takes the parser many times as long. */
const MAX_KEYS = 16_384;

/** A body that is not read to its end, with what it begins with. */
export class BodyTooLargeError extends HttpError {
  readonly head: Uint8Array;

  constructor(message: string, head: Uint8Array) {
    super(413, message);
    this.head = head;
  }
}

/** Limits and counters for reading request bodies. */
export interface BodyReader {
  readonly limits: Limits;
  readonly clock: Clock;
  /** Bytes of the bodies that are arriving right now. */
  readonly bodies: OwnerShares;
}

/** Reads the whole body, decompressed, within the server's limits. */
export async function readBody(call: Call, server: BodyReader): Promise<Uint8Array> {
  const { limits } = server;
  const request = call.req.raw;
  const encoding = (request.headers.get("content-encoding") ?? "identity").trim().toLowerCase();
  const bytes = await readRaw(request, call.get("identity").owner, encoding, server);
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

async function readRaw(
  request: Request,
  owner: string,
  encoding: string,
  server: BodyReader,
): Promise<Uint8Array> {
  if (request.body === null) return new Uint8Array(0);
  const reader = request.body.getReader();
  const parts: Uint8Array[] = [];
  try {
    const isWhole = await readParts(reader, parts, request, owner, server);
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
    for (const part of parts) server.bodies.add(owner, -part.length);
  }
}

/** False when the body is too large, once enough of it has come to see what it was. */
async function readParts(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  parts: Uint8Array[],
  request: Request,
  owner: string,
  { limits, clock, bodies }: BodyReader,
): Promise<boolean> {
  const isDeclaredTooLarge = Number(request.headers.get("content-length") ?? "0") > limits.bodyBytes;
  const idleMs = isDeclaredTooLarge ? MAX_HEAD_WAIT_MS : limits.bodyIdleMs;
  const began = clock.now();
  let total = 0;
  for (;;) {
    // At the least rate it would be here by then: a body that trickles in takes memory from the others of its owner.
    const dueMs = began + limits.bodyIdleMs + (1000 * total) / limits.bodyBytesPerSecond - clock.now();
    const waitMs = Math.max(0, Math.min(idleMs, dueMs));
    const read = await inTime(reader.read(), waitMs, clock).catch(() => {
      throw new HttpError(400, `The request body ended after ${total} bytes, before it was complete.`);
    });
    if (read === "late" && isDeclaredTooLarge) return false;
    if (read === "late") {
      const why =
        waitMs < idleMs
          ? `it came with less than ${limits.bodyBytesPerSecond} bytes a second`
          : `nothing came for ${idleMs / 1000} s`;
      throw new HttpError(408, `The request body stopped after ${total} bytes: ${why}.`);
    }
    if (read.done) return !isDeclaredTooLarge;
    parts.push(read.value);
    total += read.value.length;
    bodies.add(owner, read.value.length);
    if (total > limits.bodyBytes || (isDeclaredTooLarge && total >= MAX_HEAD_BYTES)) return false;
    const held = bodies.heldBy(owner);
    if (total < held && held > bodies.limitFor(owner)) {
      throw tooBusy(
        `Your request bodies of ${held} bytes are arriving at once; at most ${Math.floor(bodies.limitFor(owner))} may now. Try again in a moment.`,
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

/** Reads on for a limited time, enough for an ordinary body. */
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

/** Resolves with the promise's value, or with "late" after the timeout. */
function inTime<T>(promise: Promise<T>, timeoutMs: number, clock: Clock): Promise<T | "late"> {
  return new Promise((resolve, reject) => {
    const cancelTimer = clock.setTimer(() => resolve("late"), timeoutMs, { background: true });
    promise.then(resolve, reject).finally(cancelTimer);
  });
}

/** The parsed JSON object of a body; an empty body is an empty object. */
export async function readJsonObject(
  call: Call,
  server: BodyReader,
): Promise<{ value: Record<string, unknown>; text: string }> {
  const type = contentType(call.req.raw);
  if (type !== "" && type !== "application/json" && !type.endsWith("+json")) {
    throw new HttpError(415, `This endpoint takes application/json, got ${type}.`);
  }
  return await inShortSteps(parseJsonObject(await readBody(call, server), server.limits));
}

const MAX_STEP_MS = 10;
let lastTurn: Promise<unknown> = Promise.resolve();

/** Runs work that is cut into short steps. Other requests are served in between. */
export async function inShortSteps<T>(work: Generator<undefined, T>): Promise<T> {
  for (;;) {
    const until = performance.now() + MAX_STEP_MS;
    do {
      const step = work.next();
      if (step.done) return step.value;
    } while (performance.now() < until);
    // One turn for all such works together, or their steps would add up.
    lastTurn = lastTurn.then(() => new Promise((resolve) => setImmediate(resolve)));
    await lastTurn;
  }
}

/** The media type alone, without its parameters. */
export function contentType(request: Request): string {
  return (request.headers.get("content-type") ?? "").split(";")[0]!.trim().toLowerCase();
}

function* parseJsonObject(
  bytes: Uint8Array,
  limits: Limits,
): Generator<undefined, { value: Record<string, unknown>; text: string }> {
  if (bytes.length > limits.jsonBytes) {
    throw new HttpError(
      413,
      `The JSON body is larger than ${limits.jsonBytes} bytes, the limit of this server; send smaller requests.`,
    );
  }
  yield* checkParts(bytes, limits);
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
const COMMA = 0x2c;
const COLON = 0x3a;
const OPENING: readonly number[] = [0x5b, 0x7b];
const CLOSING: readonly number[] = [0x5d, 0x7d];
const BYTES_AT_A_TIME = 2 ** 16;

/** Counts before parsing: the parser takes seconds for a million empty objects, or for what is nested as deep. */
function* checkParts(bytes: Uint8Array, limits: Limits): Generator<undefined, void> {
  const tooMany = (most: number, what: string) =>
    new HttpError(413, `The JSON body has more than ${most} ${what}; send smaller requests.`);
  const keys = new Uint32Array(MAX_JSON_DEPTH + 1);
  let depth = 0;
  let parts = 0;
  let values = 0;
  let pause = BYTES_AT_A_TIME;
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index]!;
    if (byte === COMMA) {
      values += 1;
      if (values >= limits.jsonValues) throw tooMany(limits.jsonValues, "values");
    } else if (byte === QUOTE) {
      index = endOfString(bytes, index + 1);
      parts += 1;
    }
    // Digits, of which there are most, come before all of these.
    else if (byte < COLON) continue;
    else if (byte === COLON) {
      keys[depth]! += 1;
      if (keys[depth]! > MAX_KEYS) throw tooMany(MAX_KEYS, "keys in one object");
    } else if (CLOSING.includes(byte)) depth = Math.max(0, depth - 1);
    else if (OPENING.includes(byte)) {
      depth += 1;
      parts += 1;
      if (depth > MAX_JSON_DEPTH) throw invalid("body", `is nested more than ${MAX_JSON_DEPTH} levels deep`);
      keys[depth] = 0;
    }
    if (parts > limits.jsonParts) throw tooMany(limits.jsonParts, "objects, lists, texts and keys");
    if (index < pause) continue;
    pause = index + BYTES_AT_A_TIME;
    yield;
  }
}

function endOfString(bytes: Uint8Array, start: number): number {
  for (let index = start; ; index += 1) {
    const byte = bytes[index];
    if (byte === QUOTE || byte === undefined) return index;
    if (byte === BACKSLASH) index += 1;
  }
}
