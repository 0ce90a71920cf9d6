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

/** How a request of a sampling session ended. */
export type FutureCompletion =
  | {
      readonly state: "finished";
      readonly requestId: string;
      readonly responsePayloadUncompressedSize?: number | null;
    }
  | { readonly state: "failed"; readonly requestId: string };

export interface FuturesRetrieveResponse {
  readonly completions: readonly FutureCompletion[];
  readonly cursor: number;
}
