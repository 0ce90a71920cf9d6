import { APIConnectionError, TinkerError } from "../errors.js";
import {
  type ApiResponse,
  type Interruption,
  linkSignals,
  type RequestOptions,
  throwIfAborted,
} from "../transport/index.js";
import {
  type Endpoint,
  encodeRequest,
  type FutureKind,
  fromWireJson,
  type GivenMessage,
  type Shape,
  type UntypedFuture,
} from "../wire/index.js";
import { APIFuture } from "./api-future.js";
import type { FutureContext } from "./context.js";
import {
  type AttemptSettings,
  attemptOf,
  type DeliveryOptions,
  deliver,
  type Fate,
  valueOrThrow,
} from "./delivery.js";
import { pollFuture } from "./poll.js";
import type { QueueStateLogger } from "./queue-state.js";
import type { SessionFuturesPoller } from "./session-poller.js";

const MAX_RESENDS = 3;

/** The server's promise to answer a request. */
export interface Accepted<T = unknown> {
  readonly requestId: string;
  /** From the first attempt to the acceptance. */
  readonly submitMs: number;
  /** Present when the answer is known without asking for it. */
  readonly result?: T;
  /** Ids fixed at submission, one per sample, for sampling requests. */
  readonly sampleSequenceIds?: readonly string[] | undefined;
}

/** Starts a long operation: `run` tells when the server has accepted it, and returns the result. */
export function startOperation<R>(
  context: FutureContext,
  userSignal: AbortSignal | undefined,
  run: (signal: Interruption, onAccepted: (accepted: Accepted) => void) => Promise<R>,
): APIFuture<R> {
  let accept: (requestId: string) => void = () => {};
  let refuse: (error: unknown) => void = () => {};
  const submitted = new Promise<string>((resolve, reject) => {
    accept = resolve;
    refuse = reject;
  });
  const result = withSignals(context, userSignal, (signal) =>
    run(signal, ({ requestId }) => accept(requestId)),
  );
  result.catch((error: unknown) => {
    if (!context.closed.aborted && !userSignal?.aborted) context.telemetry.logException(error);
    refuse(error);
  });
  return new APIFuture<R>({ submitted, result, clock: context.clock });
}

/** Runs something that ends with the caller's signal or with the client. */
export async function withSignals<T>(
  context: Pick<FutureContext, "closed">,
  userSignal: AbortSignal | undefined,
  run: (signal: Interruption) => Promise<T>,
): Promise<T> {
  const link = linkSignals(context.closed, userSignal);
  try {
    throwIfAborted(link.signal);
    return await run(link.signal);
  } catch (error) {
    // Our own reasons (closed, stuck, a failed sibling) say more than "aborted".
    throw link.signal.reason instanceof TinkerError ? link.signal.reason : error;
  } finally {
    link.release();
  }
}

/** A request that is answered at once, delivered as patiently as one that is answered later. */
export function deliverPlain<S extends Shape, Answer>(
  context: FutureContext,
  endpoint: Endpoint<S, Answer>,
  given: GivenMessage<S>,
  options: RequestOptions,
): Promise<Answer> {
  const request = encodeRequest(endpoint, given);
  const send = (settings: AttemptSettings) =>
    context.http.exchange({ ...attemptOf(request, settings), expect: "json" });
  return withSignals(context, options.signal, async (signal) => {
    const response = valueOrThrow(await deliver(context, send, { ...options, signal }));
    return endpoint.answer.fromJson(response.json());
  });
}

/** Delivers a request that is answered later. */
export function handIn(
  context: FutureContext,
  requestType: string,
  send: (settings: AttemptSettings) => Promise<ApiResponse>,
  options: DeliveryOptions,
): Promise<Fate<Accepted<never>>> {
  const startedAt = context.clock.now();
  const attempt = async (settings: AttemptSettings) => {
    const { requestId, sampleSequenceIds } = readPromise(await send(settings), requestType);
    return { requestId, sampleSequenceIds, submitMs: context.clock.now() - startedAt };
  };
  return deliver(context, attempt, options);
}

/** Waits for the result of a request; one that is gone from the server is sent again, under the same number. */
export async function resultOf<T>(
  context: FutureContext,
  request: {
    readonly kind: FutureKind<T>;
    readonly queue: QueueStateLogger;
    readonly poller?: SessionFuturesPoller | undefined;
    sendAgain(): Promise<Accepted<T>>;
  },
  firstAccepted: Accepted<T>,
  signal: AbortSignal,
): Promise<T> {
  const { kind, queue, poller } = request;
  let accepted = firstAccepted;
  for (let resends = 0; ; resends += 1) {
    if (accepted.result !== undefined) return accepted.result;
    const { requestId, submitMs } = accepted;
    // A server that still knew the request has told of its end already, and does not tell again.
    const knownSizeBytes = resends > 0 ? undefined : await poller?.waitFor(requestId, signal);
    const outcome = await pollFuture(context, { requestId, kind, queue, signal, submitMs, knownSizeBytes });
    if (outcome.type === "result") {
      poller?.markRetrieved(requestId);
      return outcome.value;
    }
    if (resends >= MAX_RESENDS) throw outcome.error;
    context.logger.info(`${kind.requestType} ${requestId} is gone from the server: sending it again.`);
    accepted = await request.sendAgain();
  }
}

/**
 * The promise a server gives for a long operation; some servers number requests, others name them. Without an id it
 * counts as a broken connection: the request may have arrived, and sending it again under its number is safe.
 */
function readPromise(response: ApiResponse, requestType: string) {
  let promise: Partial<UntypedFuture> | null;
  try {
    promise = fromWireJson(response.json());
  } catch (cause) {
    throw new APIConnectionError(`The server's answer to ${requestType} is not JSON.`, { cause });
  }
  const { requestId, sampleSequenceIds } = promise ?? {};
  if ((typeof requestId !== "string" || requestId === "") && typeof requestId !== "number")
    throw new APIConnectionError(`The server's answer to ${requestType} carries no request id.`);
  return {
    requestId: String(requestId),
    sampleSequenceIds: Array.isArray(sampleSequenceIds) ? sampleSequenceIds.map(String) : undefined,
  };
}
