import { type APIError, RequestFailedError, TinkerError } from "../errors.js";
import { type Answer, answerOfError, answerOfResponse } from "./answer.js";
import type { FutureContext, FutureKind } from "./context.js";
import type { QueueStateLogger } from "./queue-state.js";

const POLL_TIMEOUT_MS = 45_000;
const MAX_BAD_ANSWERS = 3;
const ANSWERED_AT_ONCE_MS = 20;

/** The server no longer knows the request; sending it again under the same number is safe. */
export class PromiseGone extends Error {
  readonly error: APIError;
  constructor(error: APIError) {
    super(error.message);
    this.error = error;
  }
}

export interface PollRequest<T> {
  requestId: string;
  kind: FutureKind<T>;
  queue: QueueStateLogger;
  signal: AbortSignal;
  /** From the call to the server's acceptance; told to the server with the first poll. */
  submitMs: number;
  /** Size of the result when already known: the budget is reserved before the first poll. */
  knownSizeBytes?: number | undefined;
}

/** Asks for the result until there is one. The table of answers is in answer.ts; here is what follows from each. */
export async function pollFuture<T>(context: FutureContext, request: PollRequest<T>): Promise<T> {
  const { clock } = context;
  const { requestId, kind, signal } = request;
  const budget = new ReservedBudget(context, signal);
  let iteration = 0;
  let connectionFailures = 0;
  let badAnswers = 0;
  let troubles = 0;
  let hasty = 0;
  try {
    if (request.knownSizeBytes) await budget.reserve(request.knownSizeBytes);
    for (;;) {
      const sentAt = clock.now();
      const answer = await poll(context, request, iteration, !budget.reserved);
      iteration += 1;
      if (answer.type !== "back-off") connectionFailures = 0;
      if (answer.type !== "server-trouble") troubles = 0;
      switch (answer.type) {
        case "bytes":
        case "json":
          try {
            return await readResult(answer, kind);
          } catch (error) {
            badAnswers += 1;
            if (badAnswers > MAX_BAD_ANSWERS) throw unreadable(request, String(error));
            await clock.sleep(shortDelayMs(badAnswers), signal);
            break;
          }
        case "unreadable":
          badAnswers += 1;
          if (badAnswers > MAX_BAD_ANSWERS) throw unreadable(request, answer.detail);
          await clock.sleep(shortDelayMs(badAnswers), signal);
          break;
        case "try-again":
          badAnswers = 0;
          if (answer.queueState !== undefined || answer.reason !== undefined) {
            request.queue.tell({
              state: answer.queueState ?? "unknown",
              reason: answer.reason,
              requestId,
              requestType: kind.requestType,
            });
          }
          hasty = clock.now() - sentAt < ANSWERED_AT_ONCE_MS ? hasty + 1 : 0;
          if (context.pollBackoff && hasty > 1) await clock.sleep(shortDelayMs(hasty), signal);
          break;
        case "metadata-only":
          await budget.reserve(answer.sizeBytes);
          break;
        case "failed":
          throw new RequestFailedError(
            `${kind.requestType} failed (request ${requestId}, ${answer.category} error): ${answer.message}`,
            { requestId, category: answer.category },
          );
        case "server-trouble":
          troubles += 1;
          context.http.trouble.tell(troubles, answer.error);
          await clock.sleep(shortDelayMs(troubles), signal);
          break;
        case "back-off":
          connectionFailures += 1;
          context.http.trouble.tell(connectionFailures, answer.error);
          await clock.sleep(Math.min(2 ** (connectionFailures - 1) * 1000, 30_000), signal);
          break;
        case "bad-request":
          badAnswers += 1;
          if (badAnswers > MAX_BAD_ANSWERS) throw answer.error;
          break;
        case "payment-required":
          if (!context.billing.shouldPause(answer.error)) throw answer.error;
          await context.billing.wait(signal);
          break;
        case "gone":
          throw new PromiseGone(answer.error);
        case "fatal":
          throw answer.error;
        default:
          answer satisfies never;
      }
    }
  } finally {
    budget.release();
  }
}

async function poll<T>(
  context: FutureContext,
  request: PollRequest<T>,
  iteration: number,
  allowMetadataOnly: boolean,
): Promise<Answer> {
  const headers: Record<string, string> = {
    "X-Tinker-Request-Iteration": String(iteration),
    "X-Tinker-Request-Type": request.kind.requestType,
  };
  if (iteration === 0) headers["X-Tinker-Create-Promise-Roundtrip-Time"] = String(request.submitMs / 1000);
  try {
    const response = await context.http.exchange({
      method: "POST",
      path: "/api/v1/retrieve_future",
      json: { request_id: request.requestId, allow_metadata_only: allowMetadataOnly },
      headers,
      pool: "retrieve",
      timeout: POLL_TIMEOUT_MS,
      maxRetries: 0,
      signal: request.signal,
      ...(request.kind.fromBytes === undefined ? {} : { accept: "application/x-protobuf" }),
    });
    return answerOfResponse(response);
  } catch (error) {
    return answerOfError(error);
  }
}

async function readResult<T>(
  answer: Extract<Answer, { type: "bytes" | "json" }>,
  kind: FutureKind<T>,
): Promise<T> {
  if (answer.type === "json") return kind.fromJson(answer.json);
  if (kind.fromBytes === undefined) throw new Error("protobuf where JSON was expected");
  return kind.fromBytes(answer.bytes);
}

function unreadable(
  request: { requestId: string; kind: { requestType: string } },
  detail: string,
): TinkerError {
  return new TinkerError(
    `The server's answer to ${request.kind.requestType} (request ${request.requestId}) could not be read: ${detail}. ` +
      "It was asked again several times. Check that the base URL is a Tinker server and not a proxy's page.",
  );
}

/** 50 ms, doubling to two seconds: soon, but never a tight loop. */
function shortDelayMs(count: number): number {
  return Math.min(25 * 2 ** count, 2_000);
}

class ReservedBudget {
  reserved = false;
  readonly #context: FutureContext;
  readonly #signal: AbortSignal;
  #release: (() => void) | undefined;

  constructor(context: FutureContext, signal: AbortSignal) {
    this.#context = context;
    this.#signal = signal;
  }

  async reserve(bytes: number): Promise<void> {
    if (this.reserved) return;
    this.#release = await this.#context.responseBudget.acquire(bytes, this.#signal);
    this.reserved = true;
  }

  release(): void {
    this.#release?.();
  }
}
