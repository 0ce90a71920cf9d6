import { APIConnectionError, APIError } from "../errors.js";
import type { APIResponse } from "../transport/index.js";
import { type CompleteMetadataResponse, fromWireJson, type TryAgainResponse } from "../wire/index.js";
import { parseQueueState, type QueueState } from "./queue-state.js";

/** The outcome of one poll of `/retrieve_future`. */
export type FutureAnswer =
  | { type: "bytes"; bytes: Uint8Array }
  | { type: "json"; json: unknown }
  | { type: "try-again"; queueState: QueueState | undefined; reason: string | undefined }
  | { type: "metadata-only"; sizeBytes: number }
  | { type: "failed"; message: string; category: "unknown" | "server" | "user" }
  | { type: "unreadable"; detail: string }
  | { type: "server-error"; error: APIError }
  | { type: "unavailable"; error: Error }
  | { type: "bad-request"; error: APIError }
  | { type: "payment-required"; error: APIError }
  | { type: "gone"; error: APIError }
  | { type: "fatal"; error: unknown };

/** Reads an answer with a status below 400. */
export function answerOfResponse(response: APIResponse): FutureAnswer {
  if (response.contentType.includes("application/x-protobuf"))
    return { type: "bytes", bytes: response.bytes };
  let json: unknown;
  try {
    json = response.json();
  } catch {
    return {
      type: "unreadable",
      detail: `neither JSON nor protobuf (content type "${response.contentType}")`,
    };
  }
  if (!isRecord(json)) return { type: "unreadable", detail: "JSON, but not an object" };
  if (json["type"] === "try_again") return tryAgain(json);
  if (json["status"] === "complete_metadata") {
    const size: unknown = fromWireJson<CompleteMetadataResponse>(json).responsePayloadSize;
    return { type: "metadata-only", sizeBytes: typeof size === "number" && size > 0 ? size : 0 };
  }
  if ("error" in json) {
    const category = json["category"];
    return {
      type: "failed",
      message: typeof json["error"] === "string" ? json["error"] : JSON.stringify(json["error"]),
      category: category === "user" || category === "server" ? category : "unknown",
    };
  }
  return { type: "json", json };
}

/** Reads the error of a poll. */
export function answerOfError(error: unknown): FutureAnswer {
  if (error instanceof APIConnectionError) return { type: "unavailable", error };
  if (!(error instanceof APIError)) return { type: "fatal", error };
  const { status } = error;
  if (status === 408) return tryAgain(isRecord(error.body) ? error.body : {});
  if (status === 425 || status >= 500) return { type: "server-error", error };
  if (status === 429) return { type: "unavailable", error };
  if (status === 400) return { type: "bad-request", error };
  if (status === 402) return { type: "payment-required", error };
  if (status === 410) return { type: "gone", error };
  return { type: "fatal", error };
}

function tryAgain(body: Record<string, unknown>): FutureAnswer {
  const { queueState: state, queueStateReason: reason } = fromWireJson<Partial<TryAgainResponse>>(body);
  return {
    type: "try-again",
    queueState: typeof state === "string" && state !== "" ? parseQueueState(state) : undefined,
    reason: typeof reason === "string" && reason !== "" ? reason : undefined,
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
