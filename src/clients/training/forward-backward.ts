import { APIError, ValidationError } from "../../errors.js";
import {
  type APIFuture,
  type AttemptSettings,
  combineForwardBackwardOutputs,
  startOperation,
} from "../../futures/index.js";
import {
  backwardData,
  type CustomLossFn,
  type CustomLossResult,
  evaluateCustomLoss,
  forwardData,
  logprobVariables,
  mergeCustomLoss,
} from "../../training/custom-loss.js";
import { type ApiResponse, platform, type RequestOptions, untilAborted } from "../../transport/index.js";
import {
  type Datum,
  encodeForwardBackwardRequest,
  encodeRequest,
  endpoints,
  estimateDatumProtoBytes,
  type ForwardBackwardOutput,
  type ForwardBackwardRequest,
} from "../../wire/index.js";
import type { ClientContext } from "../context.js";
import type { ModelRequest, ModelRequests } from "./model-requests.js";

/** What one pass computes, whatever the number of requests it is sent in. */
export type Pass = Omit<ForwardBackwardRequest, "seqId">;

/** Sends a batch in as many requests as the server's limits ask for, all in one turn, and combines their results. */
export function startForwardBackward(
  context: ClientContext,
  requests: ModelRequests,
  pass: Pass,
  options: RequestOptions,
): APIFuture<ForwardBackwardOutput> {
  return requests.startAll(passRequests(context, pass), options, combineForwardBackwardOutputs);
}

/**
 * Forward pass, the user's loss, backward pass: all in one turn, so that what was called behind it is also sent
 * behind it. The turn ends when the backward pass is accepted, or with the first failure.
 */
export function startForwardBackwardCustom(
  context: ClientContext,
  requests: ModelRequests,
  call: { readonly modelId: string; readonly data: readonly Datum[]; readonly lossFn: CustomLossFn },
  options: RequestOptions,
): APIFuture<CustomLossResult> {
  const { modelId, data, lossFn } = call;
  if (typeof lossFn !== "function") {
    throw new ValidationError("lossFn", `lossFn must be a function, got ${typeof lossFn}`);
  }
  const pass = { modelId, lossFn: "cross_entropy" };
  const forward = passRequests(context, { ...pass, data: forwardData(data), forwardOnly: true });
  return startOperation(context, options.signal, async (signal, onAccepted) => {
    const { sent, evaluated } = await requests.inTurn(signal, async () => {
      const forwardSent = await requests.sendAll(forward, options, signal);
      const outputs = await requests.resultsOf(forwardSent, options, signal);
      const logprobs = logprobVariables(data, combineForwardBackwardOutputs(outputs));
      // A loss that hangs must not hold the turn once the caller has given up.
      const evaluated = await untilAborted(evaluateCustomLoss(lossFn, data, logprobs), signal);
      const backward = { ...pass, data: backwardData(data, evaluated.gradients), forwardOnly: false };
      const sent = await requests.sendAll(passRequests(context, backward), options, signal);
      return { sent, evaluated };
    });
    onAccepted(sent[0]!.accepted);
    const outputs = await requests.resultsOf(sent, options, signal);
    return mergeCustomLoss(combineForwardBackwardOutputs(outputs), evaluated);
  });
}

function passRequests(context: ClientContext, pass: Pass): ModelRequest<ForwardBackwardOutput>[] {
  const { fwdbwdMaxChunkLen, fwdbwdMaxChunkBytesCount } = context.session.config;
  const kind = pass.forwardOnly ? endpoints.forward.future : endpoints.forwardBackward.future;
  return chunksOf(pass.data, fwdbwdMaxChunkLen, fwdbwdMaxChunkBytesCount).map(({ data, bytes }) => ({
    kind,
    send: async (seqId, settings) => {
      const release = await context.trainingBudget.acquire(bytes, settings.signal);
      try {
        return await sendInLearntFormat(context, { ...pass, data, seqId }, settings);
      } finally {
        release();
      }
    },
  }));
}

interface DataChunk {
  readonly data: Datum[];
  bytes: number;
}

/** Cuts a batch into requests that each stay below the server's limits; one datum is never cut. */
function chunksOf(data: readonly Datum[], maxDatums: number, maxBytes: number): DataChunk[] {
  const chunks: DataChunk[] = [];
  for (const datum of data) {
    const bytes = estimateDatumProtoBytes(datum);
    const last = chunks.at(-1);
    if (last !== undefined && last.data.length < maxDatums && last.bytes + bytes <= maxBytes) {
      last.data.push(datum);
      last.bytes += bytes;
    } else {
      chunks.push({ data: [datum], bytes });
    }
  }
  return chunks;
}

/** What a server that knows no protobuf may answer to it; some read it as text, and crash. */
const MAYBE_THE_FORMAT: readonly number[] = [400, 422, 500];

/** Protobuf first; a server that refuses it gets JSON, and from then on only JSON. */
async function sendInLearntFormat(
  context: ClientContext,
  request: ForwardBackwardRequest,
  settings: AttemptSettings,
): Promise<ApiResponse> {
  if (context.trainingFormat === "json") return sendJson(context, request, settings);
  const isUnknown = context.trainingFormat === "unknown";
  try {
    const response = await sendProtobuf(context, request, settings);
    context.trainingFormat = "protobuf";
    return response;
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    const wantsJson = error.status === 415 || (isUnknown && MAYBE_THE_FORMAT.includes(error.status));
    if (!wantsJson) throw error;
    try {
      // A crash closes connections, so JSON may need more than one try; a server that goes on failing gets protobuf again.
      const retries = error.status === 500 ? { maxRetries: 2 } : {};
      // It is another request to a server that remembers its answers by this key.
      const idempotencyKey = `${settings.idempotencyKey}-json`;
      const response = await sendJson(context, request, { ...settings, ...retries, idempotencyKey });
      context.trainingFormat = "json";
      context.logger.info("This server takes training data as JSON only.");
      return response;
    } catch (jsonError) {
      // A server that reads protobuf refused the content, not the format, or was just failing: its first answer counts.
      const readsProtobuf = jsonError instanceof APIError && [404, 405, 415].includes(jsonError.status);
      throw readsProtobuf || error.status === 500 ? error : jsonError;
    }
  }
}

async function sendProtobuf(
  context: ClientContext,
  request: ForwardBackwardRequest,
  settings: AttemptSettings,
): Promise<ApiResponse> {
  const bytes = encodeForwardBackwardRequest(request);
  const compress = context.session.config.protoCompressFwdbwd ? platform.zstdCompress : undefined;
  const { method, path, pool } = endpoints.forwardBackward;
  return context.http.exchange({
    ...settings,
    method,
    path,
    pool,
    body: compress === undefined ? bytes : await compress(bytes),
    contentType: "application/x-protobuf",
    headers: { ...settings.headers, ...(compress === undefined ? {} : { "Content-Encoding": "zstd" }) },
  });
}

function sendJson(
  context: ClientContext,
  request: ForwardBackwardRequest,
  settings: AttemptSettings,
): Promise<ApiResponse> {
  const { modelId, seqId, data, lossFn, lossFnConfig } = request;
  const input = { data, lossFn, lossFnConfig };
  const encoded = request.forwardOnly
    ? encodeRequest(endpoints.forward, { modelId, seqId, forwardInput: input })
    : encodeRequest(endpoints.forwardBackward, { modelId, seqId, forwardBackwardInput: input });
  return context.http.exchange({ ...settings, ...encoded });
}
