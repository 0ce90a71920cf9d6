import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { APIConnectionError, APIError, APITimeoutError, type TinkerError } from "../errors.js";
import { cannotWrite, writeFully } from "../files.node.js";
import {
  abortError,
  BACK_OFF,
  backOffMs,
  type Clock,
  isRetryableStatus,
  networkReason,
  onAbort,
  throwIfAborted,
} from "../transport/index.js";

/** What is known about a file that is being fetched; kept on disk beside its bytes. */
/** One file on its way from a URL to the disk. */
export interface TransferState {
  /** Strong ETag or date: the bytes on disk belong to this version of the file. */
  validator?: string;
  totalBytes?: number;
  complete?: boolean;
}

export interface Transfer {
  /** What the file is called in messages and progress. */
  readonly file: string;
  readonly target: string;
  readonly state: TransferState;
  saveState(): Promise<void>;
  /** Where the file is; `fresh` asks for a new URL because the last one was refused. */
  url(fresh: boolean): Promise<string>;
  onBytes(bytes: number, totalBytes: number | undefined): void;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
  readonly signal: AbortSignal | undefined;
}

type Outcome =
  | { kind: "complete" }
  /** The connection failed or broke, or the file changed: asked again after a pause. */
  | { kind: "broken"; error: TinkerError; headers?: Headers }
  /** The URL is not (or no longer) good. */
  | { kind: "refused"; error: APIError };

const STALL_MS = 60_000;
const MAX_FAILURES = 6;
const MAX_REFUSALS = 2;
/** Less than this between two cuts is no progress. */
const PROGRESS_BYTES = 1 << 16;

/** Fetches a file to disk, from where an earlier attempt left it; true when bytes of that attempt were kept. */
export async function transferFile(transfer: Transfer): Promise<boolean> {
  const { file, state, clock, signal } = transfer;
  const handle = await open(transfer.target, constants.O_RDWR | constants.O_CREAT, 0o644);
  try {
    const found = (await handle.stat()).size;
    if (state.complete && found === state.totalBytes) return true;
    let furthest = found;
    let failures = 0;
    let refusals = 0;
    for (;;) {
      throwIfAborted(signal, `The download of ${file}`);
      const outcome = await attempt(transfer, handle, refusals > 0);
      if (outcome.kind === "complete") break;
      const { size } = await handle.stat();
      if (size >= furthest + PROGRESS_BYTES) {
        failures = 0;
        refusals = 0;
      }
      furthest = Math.max(furthest, size);
      if (outcome.kind === "refused") {
        refusals += 1;
        if (refusals > MAX_REFUSALS) throw outcome.error;
        continue;
      }
      failures += 1;
      if (failures >= MAX_FAILURES) {
        const total = state.totalBytes === undefined ? "" : ` of ${state.totalBytes}`;
        throw new APIConnectionError(
          `The download of ${file} stopped at byte ${size}${total} after ${failures} failures in a row: ${outcome.error.message} Call again to go on from there.`,
          { cause: outcome.error },
        );
      }
      const delayMs = backOffMs(BACK_OFF.request, failures - 1, {
        headers: outcome.headers,
        wallNow: clock.wallNow,
      });
      await clock.sleep(delayMs, signal);
    }
    await handle.sync();
    state.totalBytes = (await handle.stat()).size;
    state.complete = true;
    await transfer.saveState();
    return found > 0;
  } finally {
    await handle.close();
  }
}

async function attempt(transfer: Transfer, handle: FileHandle, freshUrl: boolean): Promise<Outcome> {
  const { state, file, signal } = transfer;
  const url = await transfer.url(freshUrl);
  const offset = (await handle.stat()).size;
  const watch = watchForStall(transfer);
  try {
    const response = await transfer
      .fetch(url, { headers: rangeHeaders(offset, state), signal: watch.signal })
      .catch((error: unknown) => {
        throw new NetworkFailure(error);
      });
    const refusal = await refusalOf(response, file);
    if (refusal !== undefined) return refusal;
    const start = await startOf(response, offset, transfer, handle);
    if (typeof start !== "number") return start;
    return await receive(response, start, transfer, handle, watch.alive);
  } catch (error) {
    if (signal?.aborted) throw abortError(signal, `The download of ${file}`);
    if (!(error instanceof NetworkFailure)) throw error;
    const sentence = watch.stalled() ? `No bytes came for ${STALL_MS / 1000} s.` : error.message;
    const errorClass = watch.stalled() ? APITimeoutError : APIConnectionError;
    return { kind: "broken", error: new errorClass(sentence, { cause: error.cause }) };
  } finally {
    watch.end();
  }
}

function rangeHeaders(offset: number, state: TransferState): Record<string, string> {
  // Compressed on the way, neither sizes nor ranges would be those of the file.
  const headers: Record<string, string> = { "accept-encoding": "identity" };
  if (offset === 0) return headers;
  headers["range"] = `bytes=${offset}-`;
  if (state.validator !== undefined) headers["if-range"] = state.validator;
  return headers;
}

async function refusalOf(response: Response, file: string): Promise<Outcome | undefined> {
  const { status, headers } = response;
  if (response.ok || status === 416) return undefined;
  const body = (await response.text().catch(() => "")).slice(0, 500);
  const error = APIError.from(status, headers, body, { method: "GET", path: file });
  if (isRetryableStatus(status)) return { kind: "broken", error, headers };
  // An expired signature is a 403 at most stores, a 400 at one, and a 401, 404 or 410 at servers of their own making.
  if ([400, 401, 403, 404, 410].includes(status)) return { kind: "refused", error };
  throw error;
}

/** The position at which the answer's bytes belong; the file is emptied when they are not those it waits for. */
async function startOf(
  response: Response,
  offset: number,
  transfer: Transfer,
  handle: FileHandle,
): Promise<number | Outcome> {
  const { state } = transfer;
  const range = /^bytes (?:(\d+)-\d+|\*)\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
  const totalBytes = range?.[2] === undefined || range[2] === "*" ? undefined : Number(range[2]);
  if (response.status === 416) {
    await response.body?.cancel();
    if (totalBytes === offset && (state.totalBytes ?? offset) === offset) return { kind: "complete" };
    return startAgain(transfer, handle, "The file has another size than before.");
  }
  const validator = validatorOf(response.headers);
  if (response.status === 206) {
    const same =
      range?.[1] === String(offset) &&
      (state.totalBytes === undefined || totalBytes === undefined || totalBytes === state.totalBytes) &&
      (state.validator === undefined || validator === undefined || validator === state.validator);
    if (!same) {
      await response.body?.cancel();
      return startAgain(
        transfer,
        handle,
        "The file changed, or the server sent another part than asked for.",
      );
    }
    if (totalBytes !== undefined) state.totalBytes = totalBytes;
    await transfer.saveState();
    return offset;
  }
  await handle.truncate(0);
  const length = response.headers.get("content-length");
  delete state.validator;
  delete state.totalBytes;
  if (validator !== undefined) state.validator = validator;
  if (length !== null && !response.headers.has("content-encoding")) state.totalBytes = Number(length);
  await transfer.saveState();
  return 0;
}

async function startAgain(transfer: Transfer, handle: FileHandle, why: string): Promise<Outcome> {
  await handle.truncate(0);
  delete transfer.state.validator;
  delete transfer.state.totalBytes;
  await transfer.saveState();
  return { kind: "broken", error: new APIConnectionError(why) };
}

/** Weak ETags do not promise equal bytes. */
function validatorOf(headers: Headers): string | undefined {
  const etag = headers.get("etag");
  if (etag !== null && !etag.startsWith("W/")) return etag;
  return headers.get("last-modified") ?? undefined;
}

async function receive(
  response: Response,
  start: number,
  transfer: Transfer,
  handle: FileHandle,
  alive: () => void,
): Promise<Outcome> {
  const { totalBytes } = transfer.state;
  let position = start;
  transfer.onBytes(position, totalBytes);
  if (response.body !== null) {
    for await (const chunk of networkChunks(response.body)) {
      alive();
      await writeFully(handle, chunk, position).catch((error: unknown) => {
        throw cannotWrite(transfer.target, error);
      });
      position += chunk.length;
      transfer.onBytes(position, totalBytes);
    }
  }
  if (totalBytes === undefined || position === totalBytes) {
    // Where the server did not announce a size, it is known by now.
    transfer.onBytes(position, position);
    return { kind: "complete" };
  }
  if (position > totalBytes) {
    return startAgain(
      transfer,
      handle,
      `The server sent more than the ${totalBytes} bytes it had announced.`,
    );
  }
  return {
    kind: "broken",
    error: new APIConnectionError(`The connection ended at byte ${position} of ${totalBytes}.`),
  };
}

function watchForStall({ clock, signal }: Transfer) {
  const controller = new AbortController();
  const unsubscribe = onAbort(signal, () => controller.abort(signal?.reason));
  let stalled = false;
  let lastByteAt = clock.now();
  let cancel: () => void;
  // One timer that looks at the time of the last byte, rather than a new one for each chunk.
  const check = () => {
    const left = lastByteAt + STALL_MS - clock.now();
    if (left > 0) cancel = clock.setTimer(check, left);
    else {
      stalled = true;
      controller.abort();
    }
  };
  cancel = clock.setTimer(check, STALL_MS);
  return {
    signal: controller.signal,
    stalled: () => stalled,
    alive: () => {
      lastByteAt = clock.now();
    },
    end: () => {
      cancel();
      unsubscribe();
      // Also ends a body that was not read to its end.
      controller.abort();
    },
  };
}

/** Tells what the network did from what the disk or the caller's own code did. */
class NetworkFailure extends Error {
  constructor(error: unknown) {
    super(`The connection broke: ${networkReason(error).text}.`, { cause: error });
  }
}

async function* networkChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of body) yield chunk;
  } catch (error) {
    throw new NetworkFailure(error);
  }
}
