import { APIConnectionError } from "../errors.js";
import type { ApiResponse } from "../transport/index.js";
import type { Accepted } from "./operation.js";

/** Reads the promise a server gives for a long operation. Some servers number requests, others name them. */
export function readAcceptance(response: ApiResponse, what: string): Accepted<never> {
  let body: unknown;
  try {
    body = response.json();
  } catch (error) {
    throw unreadable(what, error);
  }
  const { request_id: id, sample_sequence_ids: sequenceIds } = (body ?? {}) as Record<string, unknown>;
  if ((typeof id !== "string" || id === "") && typeof id !== "number") throw unreadable(what);
  return {
    requestId: String(id),
    sampleSequenceIds: Array.isArray(sequenceIds) ? sequenceIds.map(String) : undefined,
  };
}

/** Counts as a broken connection: the request may have arrived, and sending it again under its number is safe. */
function unreadable(what: string, cause?: unknown): APIConnectionError {
  return new APIConnectionError(`The server's answer to ${what} carries no request id.`, { cause });
}
