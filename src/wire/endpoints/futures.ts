import * as f from "../fields/index.js";
import { endpoint, type JsonCodec, json } from "./endpoint.js";

/** Why a request waits, as the server says. */
export type SentQueueState = "active" | "paused_capacity" | "paused_rate_limit" | (string & {});

/** A poll that ended without a result. */
export interface TryAgainResponse {
  readonly type: "try_again";
  readonly requestId?: string | null;
  readonly queueState?: SentQueueState | null;
  readonly queueStateReason?: string | null;
}

/** A result that is there, and how large it is. */
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

/** Completions of a sampling session since the cursor. */
export interface FuturesRetrieveResponse {
  readonly completions: readonly FutureCompletion[];
  readonly cursor: number;
}

const MAX_RETRIEVED_IDS = 100_000;

/** Some servers number their requests. */
const requestId: f.Field<string> = {
  ...f.text,
  read: (json, path) => f.text.read(typeof json === "number" ? String(json) : json, path),
};

/** The answer has one of many forms, or is the result itself: it is read where it is polled for. */
const anyAnswer: JsonCodec<unknown> = { fromJson: (answer) => answer, toJson: (answer) => answer };

/** Results: fetched one at a time by long polls, or announced many at once. */
export const futureEndpoints = {
  retrieveFuture: endpoint("POST", "/api/v1/retrieve_future", {
    pool: "retrieve",
    fields: { requestId, allowMetadataOnly: f.withDefault(f.boolean, false) },
    answer: anyAnswer,
  }),
  retrieveFutures: endpoint("POST", "/api/v1/retrieve_futures", {
    pool: "retrieve",
    fields: {
      target: f.message({
        type: f.withDefault(f.oneOf("sampling_session"), "sampling_session"),
        samplingSessionId: f.text,
        clonedSamplerId: f.withDefault(f.nonNegativeInteger, 0),
      }),
      prevCursor: f.withDefault(f.nonNegativeInteger, 0),
      timeout: f.optional(f.nonNegative),
      retrievedRequestIds: f.withDefault(f.list(f.text, { most: MAX_RETRIEVED_IDS }), []),
    },
    answer: json<FuturesRetrieveResponse>(),
  }),
  cancelFuture: endpoint("POST", "/api/v1/cancel_future", {
    pool: "retrieve",
    fields: { requestId },
    answer: json<unknown>(),
  }),
} as const;
