import type { RequestErrorCategory } from "../../errors.js";

export type QueueState = "active" | "paused_capacity" | "paused_rate_limit" | (string & {});

export interface TryAgainResponse {
  readonly type: "try_again";
  readonly requestId?: string | null;
  readonly queueState?: QueueState | null;
  readonly queueStateReason?: string | null;
}

export interface CompleteMetadataResponse {
  readonly status: "complete_metadata";
  readonly responsePayloadSize: number;
}

export interface RequestFailedResponse {
  readonly error: string;
  readonly category: RequestErrorCategory;
}

export interface FutureFinished {
  readonly state: "finished";
  readonly requestId: string;
  readonly responsePayloadUncompressedSize?: number | null;
}

export interface FutureFailed {
  readonly state: "failed";
  readonly requestId: string;
}

export type FutureCompletion = FutureFinished | FutureFailed;

export interface FuturesRetrieveResponse {
  readonly completions: readonly FutureCompletion[];
  readonly cursor: number;
}
