import { TinkerError } from "../errors.js";
import { throwIfAborted } from "../transport/index.js";
import { APIFuture } from "./api-future.js";
import type { FutureContext, FutureKind } from "./context.js";
import { linkSignals } from "./link-signals.js";
import { PromiseGone, pollFuture } from "./poll.js";
import type { QueueStateLogger } from "./queue-state.js";
import type { SessionFuturesPoller } from "./session-poller.js";

const MAX_RESENDS = 3;

/** The server's acceptance of a request. */
export interface Accepted<T = unknown> {
  requestId: string;
  /** Present when the answer is known without asking for it. */
  result?: T;
  /** Ids fixed at submission, one per sample, for sampling requests. */
  sampleSequenceIds?: readonly string[] | undefined;
}

export interface Operation<T, R> {
  kind: FutureKind<T>;
  queue: QueueStateLogger;
  /** Sends the request and waits for its acceptance. Called again, with the same content, when the promise is gone. */
  submit(signal: AbortSignal): Promise<Accepted<T>>;
  finish(result: T, accepted: Accepted): R;
  signal?: AbortSignal | undefined;
  poller?: SessionFuturesPoller | undefined;
  /** Called when the caller gave up after the server had accepted the request. */
  onAbandoned?(requestId: string): void;
}

/** Starts an operation: submits it, polls it, sends it again when the server has lost it. */
export function startOperation<T, R = T>(context: FutureContext, operation: Operation<T, R>): APIFuture<R> {
  let accept: (requestId: string) => void = () => {};
  let refuse: (error: unknown) => void = () => {};
  const submitted = new Promise<string>((resolve, reject) => {
    accept = resolve;
    refuse = reject;
  });
  const result = run(context, operation, accept);
  result.catch(refuse);
  return new APIFuture<R>({ submitted, result, clock: context.clock });
}

async function run<T, R>(
  context: FutureContext,
  operation: Operation<T, R>,
  onAccepted: (requestId: string) => void,
): Promise<R> {
  const { kind, queue, poller } = operation;
  const link = linkSignals(context.closed, operation.signal);
  let accepted: Accepted<T> | undefined;
  try {
    for (let resends = 0; ; resends += 1) {
      const startedAt = context.clock.now();
      accepted = undefined;
      throwIfAborted(link.signal, kind.requestType);
      accepted = await operation.submit(link.signal);
      const { requestId } = accepted;
      onAccepted(requestId);
      if (accepted.result !== undefined) return operation.finish(accepted.result, accepted);
      const submitMs = context.clock.now() - startedAt;
      try {
        // A server that still knew the request has told of its end already, and does not tell again.
        const knownSizeBytes = resends > 0 ? undefined : await poller?.waitFor(requestId, link.signal);
        const result = await pollFuture(context, {
          requestId,
          kind,
          queue,
          signal: link.signal,
          submitMs,
          knownSizeBytes,
        });
        poller?.markRetrieved(requestId);
        return operation.finish(result, accepted);
      } catch (error) {
        if (!(error instanceof PromiseGone)) throw error;
        if (resends >= MAX_RESENDS) throw error.error;
        context.logger.info(`${kind.requestType} ${requestId} is gone from the server: sending it again.`);
      }
    }
  } catch (error) {
    if (!link.signal.aborted) {
      context.telemetry.logException(error);
      throw error;
    }
    if (accepted !== undefined) operation.onAbandoned?.(accepted.requestId);
    // Our own reasons (closed, stuck, a failed sibling) say more than "aborted".
    throw link.signal.reason instanceof TinkerError ? link.signal.reason : error;
  } finally {
    link.release();
  }
}
