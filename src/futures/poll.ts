import { type APIError, RequestFailedError, TinkerError } from "../errors.js";
import { BACK_OFF, backOffMs, MAX_UNREADABLE_ANSWERS } from "../transport/index.js";
import { encodeRequest, endpoints, type FutureKind, inUsersWords } from "../wire/index.js";
import { answerOfError, answerOfResponse, type FutureAnswer } from "./answer.js";
import type { FutureContext } from "./context.js";
import type { QueueStateLogger } from "./queue-state.js";

const POLL_TIMEOUT_MS = 45_000;
const AT_ONCE_MS = 20;

/** Either the result, or the news that the server no longer knows the request: to send it again is safe. */
export type PollOutcome<T> =
  | { readonly type: "result"; readonly value: T }
  | { readonly type: "gone"; readonly error: APIError };

/** A request whose result is asked for. */
export interface PollRequest<T> {
  requestId: string;
  kind: FutureKind<T>;
  queue: QueueStateLogger;
  signal: AbortSignal;
  /** From the call to the server's acceptance; sent to the server with the first poll. */
  submitMs: number;
  /** Size of the result when already known: the budget is reserved before the first poll. */
  knownSizeBytes?: number | undefined;
}

/** Asks for the result until there is one. The table of answers is in answer.ts; here is what follows from each. */
export async function pollFuture<T>(
  context: FutureContext,
  request: PollRequest<T>,
): Promise<PollOutcome<T>> {
  const { clock } = context;
  const { requestId, kind, signal } = request;
  const budget = new ReservedBudget(context, signal);
  let iteration = 0;
  let unavailable = 0;
  let badAnswers = 0;
  let serverErrors = 0;
  let answeredAtOnce = 0;
  try {
    if (request.knownSizeBytes) await budget.reserve(request.knownSizeBytes);
    for (;;) {
      const sentAt = clock.now();
      const answer = await poll(context, request, iteration, !budget.reserved);
      iteration += 1;
      if (answer.type !== "unavailable") unavailable = 0;
      if (answer.type !== "server-error") serverErrors = 0;
      switch (answer.type) {
        case "bytes":
        case "json":
          try {
            return { type: "result", value: await readResult(answer, kind) };
          } catch (error) {
            badAnswers += 1;
            if (badAnswers > MAX_UNREADABLE_ANSWERS) throw unreadable(request, String(error));
            await clock.sleep(backOffMs(BACK_OFF.poll, badAnswers - 1), signal);
            break;
          }
        case "unreadable":
          badAnswers += 1;
          if (badAnswers > MAX_UNREADABLE_ANSWERS) throw unreadable(request, answer.detail);
          await clock.sleep(backOffMs(BACK_OFF.poll, badAnswers - 1), signal);
          break;
        case "try-again":
          badAnswers = 0;
          if (answer.queueState !== undefined || answer.reason !== undefined) {
            request.queue.report({
              state: answer.queueState ?? "unknown",
              reason: answer.reason,
              requestId,
              requestType: kind.requestType,
            });
          }
          answeredAtOnce = clock.now() - sentAt < AT_ONCE_MS ? answeredAtOnce + 1 : 0;
          if (context.pollBackoff && answeredAtOnce > 1)
            await clock.sleep(backOffMs(BACK_OFF.poll, answeredAtOnce - 1), signal);
          break;
        case "metadata-only":
          await budget.reserve(answer.sizeBytes);
          break;
        case "failed":
          throw new RequestFailedError(
            `${kind.requestType} failed (request ${requestId}, ${answer.category} error): ${inUsersWords(answer.message)}`,
            { requestId, category: answer.category },
          );
        case "server-error":
          serverErrors += 1;
          context.http.retryWarnings.failed(serverErrors, answer.error);
          await clock.sleep(backOffMs(BACK_OFF.poll, serverErrors - 1), signal);
          break;
        case "unavailable":
          unavailable += 1;
          context.http.retryWarnings.failed(unavailable, answer.error);
          await clock.sleep(backOffMs(BACK_OFF.patient, unavailable - 1), signal);
          break;
        case "bad-request":
          badAnswers += 1;
          if (badAnswers > MAX_UNREADABLE_ANSWERS) throw answer.error;
          break;
        case "payment-required":
          if (!context.billing.shouldPause(answer.error)) throw answer.error;
          await context.billing.wait(signal);
          break;
        case "gone":
          return answer;
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
): Promise<FutureAnswer> {
  const headers: Record<string, string> = {
    "X-Tinker-Request-Iteration": String(iteration),
    "X-Tinker-Request-Type": request.kind.requestType,
  };
  if (iteration === 0) headers["X-Tinker-Create-Promise-Roundtrip-Time"] = String(request.submitMs / 1000);
  try {
    const { requestId } = request;
    const { method, path, pool, json } = encodeRequest(endpoints.retrieveFuture, {
      requestId,
      allowMetadataOnly,
    });
    const response = await context.http.exchange({
      method,
      path,
      pool,
      json,
      headers,
      timeout: POLL_TIMEOUT_MS,
      maxRetries: 0,
      patienceMs: Number.POSITIVE_INFINITY,
      signal: request.signal,
      accept: request.kind.fromBytes && "application/x-protobuf",
    });
    return answerOfResponse(response);
  } catch (error) {
    return answerOfError(error);
  }
}

async function readResult<T>(
  answer: Extract<FutureAnswer, { type: "bytes" | "json" }>,
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
