import { APIError } from "../errors.js";
import {
  type Accepted,
  APIFuture,
  combineForwardBackwardOutputs,
  futureKinds,
  linkSignals,
  startOperation,
} from "../futures/index.js";
import { type ApiRequest, type ApiResponse, platform, type RequestOptions } from "../transport/index.js";
import {
  type Datum,
  encodeForwardBackwardRequest,
  type ForwardBackwardOutput,
  type ForwardBackwardRequest,
  forwardBackwardRequestToJson,
} from "../wire/index.js";
import { chunkData, type DataChunk } from "./chunk-data.js";
import type { ClientContext } from "./context.js";
import type { SendNumbered, TrainingQueue } from "./training-queue.js";

export interface ForwardBackwardCall {
  modelId: string;
  data: readonly Datum[];
  lossFn: string;
  lossFnConfig: Readonly<Record<string, number | string>> | undefined;
  forwardOnly: boolean;
  options: RequestOptions;
}

/**
 * Sends a batch in as many requests as the server's limits ask for, all in one turn, and combines their results.
 * Where the server allows it the requests go side by side and the first one last: the server starts with it, and
 * then finds the others already there.
 */
export function startForwardBackward(
  context: ClientContext,
  queue: TrainingQueue,
  call: ForwardBackwardCall,
): APIFuture<ForwardBackwardOutput> {
  const { config } = context.session;
  const chunks = chunkData(call.data, {
    maxDatums: config.fwdbwdMaxChunkLen,
    maxBytes: config.fwdbwdMaxChunkBytesCount,
  });
  const kind = call.forwardOnly ? futureKinds.forward : futureKinds.forwardBackward;
  const link = linkSignals(context.closed, call.options.signal);
  const requests = chunks.map((chunk) => ({
    kind,
    send: chunkSender(context, call, chunk),
    options: call.options,
  }));
  const seqIds: number[] = [];
  const firstSend = queue.inTurn(link.signal, async () => {
    const numbers = queue.takeNumbers(chunks.length);
    const accepted: Accepted<ForwardBackwardOutput>[] = [];
    const tried = new Set<number>();
    const send = async (index: number) => {
      tried.add(index);
      const sent = await queue.sendNext<ForwardBackwardOutput>(
        { ...requests[index]!, number: numbers[index]! },
        link.signal,
      );
      seqIds[index] = sent.seqId;
      accepted[index] = sent.accepted;
    };
    try {
      if (config.parallelFwdbwdChunks) {
        await allSettledOrThrow(chunks.slice(1).map((_, index) => send(index + 1)));
        await send(0);
      } else {
        for (const index of chunks.keys()) await send(index);
      }
      return accepted;
    } finally {
      for (const [index, number] of numbers.entries()) if (!tried.has(index)) queue.giveBackUnsent(number);
    }
  });
  firstSend.catch(() => {});

  const parts = requests.map((request, index) => {
    let sentBefore = false;
    return startOperation<ForwardBackwardOutput>(context, {
      kind,
      queue: queue.queue,
      signal: link.signal,
      submit: async (signal) => {
        if (sentBefore) return queue.sendAs(seqIds[index]!, request, signal);
        const accepted = (await firstSend)[index]!;
        sentBefore = true;
        return accepted;
      },
      finish: (output) => output,
    });
  });
  const result = Promise.all(parts)
    .then(combineForwardBackwardOutputs)
    // The other parts of a failed batch are not polled any further.
    .catch((error) => {
      link.signal.abort(error);
      throw error;
    })
    .finally(link.release);
  const submitted = firstSend.then((accepted) => accepted[0]!.requestId);
  return new APIFuture({ submitted, result, clock: context.clock });
}

async function allSettledOrThrow(promises: Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(promises);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}

function chunkSender(context: ClientContext, call: ForwardBackwardCall, chunk: DataChunk): SendNumbered {
  return async (seqId, settings) => {
    const request: ForwardBackwardRequest = {
      modelId: call.modelId,
      seqId,
      data: chunk.data,
      lossFn: call.lossFn,
      lossFnConfig: call.lossFnConfig,
      forwardOnly: call.forwardOnly,
    };
    const release = await context.trainingBudget.acquire(chunk.bytes, settings.signal ?? undefined);
    try {
      return await exchangeInLearntFormat(context, request, settings);
    } finally {
      release();
    }
  };
}

/** What a server that knows no protobuf may answer to it; some read it as text, and crash. */
const MAYBE_THE_FORMAT: readonly number[] = [400, 422, 500];

/** Protobuf first; a server that refuses it gets JSON, and from then on only JSON. */
async function exchangeInLearntFormat(
  context: ClientContext,
  request: ForwardBackwardRequest,
  settings: Parameters<SendNumbered>[1],
): Promise<ApiResponse> {
  if (context.trainingFormat === "json") return context.http.exchange(jsonRequest(request, settings));
  const isUnknown = context.trainingFormat === "unknown";
  try {
    // The caller sends again whatever may pass: the first time, a crash is better followed by the other format.
    const first = isUnknown ? { ...settings, maxRetries: 0 } : settings;
    const response = await context.http.exchange(await protobufRequest(context, request, first));
    context.trainingFormat = "protobuf";
    return response;
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    const wantsJson = error.status === 415 || (isUnknown && MAYBE_THE_FORMAT.includes(error.status));
    if (!wantsJson) throw error;
    try {
      // A crash closes connections, so JSON may need more than one try; a server that goes on failing gets protobuf again.
      const second = error.status === 500 ? { ...settings, maxRetries: 2 } : settings;
      const response = await context.http.exchange(jsonRequest(request, second));
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

async function protobufRequest(
  context: ClientContext,
  request: ForwardBackwardRequest,
  settings: Parameters<SendNumbered>[1],
): Promise<ApiRequest> {
  const bytes = encodeForwardBackwardRequest(request);
  const compress = context.session.config.protoCompressFwdbwd ? platform.zstdCompress : undefined;
  return {
    ...settings,
    method: "POST",
    path: "/api/v1/forward_backward",
    pool: "train",
    body: compress === undefined ? bytes : await compress(bytes),
    contentType: "application/x-protobuf",
    headers: { ...settings.headers, ...(compress === undefined ? {} : { "Content-Encoding": "zstd" }) },
  };
}

function jsonRequest(request: ForwardBackwardRequest, settings: Parameters<SendNumbered>[1]): ApiRequest {
  return {
    ...settings,
    method: "POST",
    path: request.forwardOnly ? "/api/v1/forward" : "/api/v1/forward_backward",
    pool: "train",
    json: forwardBackwardRequestToJson(request),
  };
}
