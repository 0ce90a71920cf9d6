import { APIConnectionError, APIError, TinkerError } from "../errors.js";
import {
  type APIResponse,
  type Interruption,
  linkSignals,
  type RequestOptions,
  throwIfAborted,
} from "../transport/index.js";
import {
  type Endpoint,
  fromWireJson,
  type GivenMessage,
  type OperationEndpoint,
  type Shape,
  type UntypedFuture,
} from "../wire/index.js";
import { APIFuture } from "./api-future.js";
import type { FutureContext } from "./context.js";
import {
  type DeliveryOptions,
  type DeliveryOutcome,
  deliver,
  type Outgoing,
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

/** Starts a long operation: `run` reports when the server has accepted it, and returns the result. */
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
  message: GivenMessage<S>,
  options: RequestOptions,
): Promise<Answer> {
  return withSignals(context, options.signal, async (signal) => {
    const outcome = await deliver(context, { endpoint, message }, { ...options, signal }, (attempt) =>
      context.http.exchange({ ...attempt, expect: "json" }),
    );
    return endpoint.answer.fromJson(valueOrThrow(outcome).json());
  });
}

/** A request for a long operation, as data. */
export interface Submission<T> extends Outgoing {
  readonly endpoint: OperationEndpoint<Shape, T>;
  /** Statuses that mean, after an attempt that may have arrived, that it has done the work; and its result then. */
  readonly doneAlready?: { readonly statuses: readonly number[]; readonly result: T } | undefined;
}

/** Sends a request that is answered later. */
export async function submit<T>(
  context: FutureContext,
  submission: Submission<T>,
  options: DeliveryOptions,
): Promise<DeliveryOutcome<Accepted<T>>> {
  const { endpoint, doneAlready } = submission;
  const startedAt = context.clock.now();
  const finalStatuses = options.finalStatuses ?? doneAlready?.statuses;
  const outcome = await deliver(context, submission, { ...options, finalStatuses }, async (attempt) =>
    readPromise(await context.http.exchange(attempt), endpoint.future.requestType),
  );
  if (outcome.type === "accepted")
    return { type: "accepted", value: { ...outcome.value, submitMs: context.clock.now() - startedAt } };
  if (outcome.type === "refused" || doneAlready === undefined || options.finalStatuses !== undefined)
    return outcome;
  if (!(outcome.error instanceof APIError && doneAlready.statuses.includes(outcome.error.status)))
    return outcome;
  return { type: "accepted", value: { requestId: "", submitMs: 0, result: doneAlready.result } };
}

/** How an accepted request is waited for. */
export interface WaitOptions extends DeliveryOptions {
  readonly queue: QueueStateLogger;
  readonly poller?: SessionFuturesPoller | undefined;
  /** Called each time the server accepts the request. */
  readonly onAccepted?: ((accepted: Accepted) => void) | undefined;
}

/** Sends a request and waits for its result. */
export async function perform<T>(
  context: FutureContext,
  submission: Submission<T>,
  options: WaitOptions,
): Promise<T> {
  const accepted = valueOrThrow(await submit(context, submission, options));
  options.onAccepted?.(accepted);
  return resultOf(context, submission, accepted, options);
}

/** Waits for the result of a request; one that the server has lost is sent again, under the same number. */
export async function resultOf<T>(
  context: FutureContext,
  submission: Submission<T>,
  firstAccepted: Accepted<T>,
  options: WaitOptions,
): Promise<T> {
  const { queue, poller, signal } = options;
  const kind = submission.endpoint.future;
  let accepted = firstAccepted;
  for (let resends = 0; ; resends += 1) {
    if (accepted.result !== undefined) return accepted.result;
    const { requestId, submitMs } = accepted;
    // A server that still knew the request has reported its end already, and does not report it again.
    const knownSizeBytes = resends > 0 ? undefined : await poller?.waitFor(requestId, signal);
    const outcome = await pollFuture(context, { requestId, kind, queue, signal, submitMs, knownSizeBytes });
    if (outcome.type === "result") {
      poller?.markRetrieved(requestId);
      return outcome.value;
    }
    if (resends >= MAX_RESENDS) throw outcome.error;
    context.logger.info(`${kind.requestType} ${requestId} is gone from the server: sending it again.`);
    accepted = valueOrThrow(await submit(context, submission, { ...options, sentBefore: true }));
    options.onAccepted?.(accepted);
  }
}

/**
 * The promise a server gives for a long operation; some servers number requests, others name them. Without an id it
 * counts as a broken connection: the request may have arrived, and sending it again under its number is safe.
 */
function readPromise(response: APIResponse, requestType: string) {
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
