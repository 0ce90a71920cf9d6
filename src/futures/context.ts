import type { BillingPause, Session, Telemetry } from "../session/index.js";
import type { ByteBudget, Clock, HttpClient, Logger } from "../transport/index.js";
import {
  type ForwardBackwardOutput,
  forwardBackwardOutputFromJson,
  fromWireJson,
  type LoadWeightsResponse,
  type OptimStepResponse,
  type SampleResponse,
  sampleResponseFromJson,
} from "../wire/index.js";

/** What every long operation of one session shares. */
export interface FutureContext {
  http: HttpClient;
  session: Session;
  clock: Clock;
  logger: Logger;
  telemetry: Telemetry;
  billing: BillingPause;
  /** Bytes of large results that may be on their way at once. */
  responseBudget: ByteBudget;
  /** Aborted when the client is closed: ends every operation. */
  closed: AbortSignal;
  /** Wait a little between polls when the server answers them at once instead of holding them. */
  pollBackoff: boolean;
}

/** How the answer of one kind of request is read. */
export interface FutureKind<T> {
  requestType: string;
  fromJson(json: unknown): T;
  /** Present when the server may answer in protobuf. */
  fromBytes?(bytes: Uint8Array): Promise<T>;
}

/** Half of what the SDK would load at start-up, so it is loaded with the first answer that needs it. */
let protobufModule: typeof import("../wire/protobuf.js") | undefined;
const protobuf = async () => {
  protobufModule ??= await import("../wire/protobuf.js");
  return protobufModule;
};

const jsonKind = <T>(requestType: string): FutureKind<T> => ({
  requestType,
  fromJson: (json) => fromWireJson<T>(json),
});

const forwardBackwardKind = (requestType: string): FutureKind<ForwardBackwardOutput> => ({
  requestType,
  fromJson: forwardBackwardOutputFromJson,
  fromBytes: async (bytes) => (await protobuf()).decodeForwardBackwardOutput(bytes),
});

export const futureKinds = {
  createModel: jsonKind<{ modelId: string }>("CreateModel"),
  unloadModel: jsonKind<Record<string, unknown>>("UnloadModel"),
  forward: forwardBackwardKind("Forward"),
  forwardBackward: forwardBackwardKind("ForwardBackward"),
  optimStep: jsonKind<OptimStepResponse>("OptimStep"),
  saveWeights: jsonKind<{ path: string }>("SaveWeights"),
  saveWeightsForSampler: jsonKind<{ path?: string; samplingSessionId?: string }>("SaveWeightsForSampler"),
  saveWeightsExternal: jsonKind<{ path: string; sizeBytes?: number }>("SaveWeightsExternal"),
  loadWeights: jsonKind<LoadWeightsResponse>("LoadWeights"),
  sample: {
    requestType: "Sample",
    fromJson: sampleResponseFromJson,
    fromBytes: async (bytes) => (await protobuf()).decodeSampleResponse(bytes),
  } as FutureKind<SampleResponse>,
};
