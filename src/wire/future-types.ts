import type { RequestErrorCategory } from "../errors.js";

export interface FutureRetrieveRequest {
  readonly requestId: string;
  /** Lets the server answer with status and size alone when the result is large. */
  readonly allowMetadataOnly?: boolean | undefined;
}

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

/** Asks about all requests of one sampling session at once. */
export interface FuturesRetrieveRequest {
  readonly target: SamplingSessionFuturesTarget;
  /** Cursor of the answer before; 0 starts from the beginning. */
  readonly prevCursor?: number | undefined;
  /** Seconds the server may hold the request. */
  readonly timeout?: number | undefined;
  /** Requests whose results have been fetched, so that the server may forget them. */
  readonly retrievedRequestIds?: readonly string[] | undefined;
}

export interface SamplingSessionFuturesTarget {
  readonly type: "sampling_session";
  readonly samplingSessionId: string;
  /** `Math.floor(seqId / 1e9)`; 0 for the first client of a sampling session. */
  readonly clonedSamplerId?: number | undefined;
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
