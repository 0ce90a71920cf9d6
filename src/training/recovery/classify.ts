import {
  APIConnectionError,
  APIError,
  APIUserAbortError,
  RequestFailedError,
  ValidationError,
} from "../../errors.js";
import type { FailureReason, RecoveryPolicy } from "./types.js";

/** Why a run cannot go on. */
export interface RunFailure {
  readonly reason: FailureReason;
  readonly error: unknown;
}

/** Whether a new model from a checkpoint can mend what requests of this one could not, by the error or its causes. */
export function classify(error: unknown, shouldRestore: RecoveryPolicy["shouldRestore"]): RunFailure {
  const reason = reasonOf(error);
  const wanted = shouldRestore?.(error);
  if (wanted === undefined || wanted === (reason !== "fatal")) return { reason, error };
  return { reason: wanted ? "server" : "fatal", error };
}

function reasonOf(error: unknown): FailureReason {
  const seen = new Set<unknown>();
  for (let current = error; current instanceof Error && !seen.has(current); current = current.cause) {
    seen.add(current);
    if (current instanceof ValidationError || current instanceof APIUserAbortError) return "fatal";
    if (current instanceof APIConnectionError) return "unreachable";
    if (current instanceof RequestFailedError) return current.category === "user" ? "fatal" : "server";
    if (current instanceof APIError) return reasonOfStatus(current.status);
  }
  return "fatal";
}

function reasonOfStatus(status: number): FailureReason {
  if (status === 404 || status === 410) return "lost";
  // The client's idea of the order and the server's have parted; only a new model brings them together.
  if (status === 408 || status === 409 || status === 429 || status >= 500) return "server";
  return "fatal";
}

/** The checkpoint itself cannot be loaded, as opposed to the server being in trouble. */
export function blamesCheckpoint(error: unknown): boolean {
  if (error instanceof RequestFailedError) return error.category === "user";
  return error instanceof APIError && [400, 404, 422].includes(error.status);
}
