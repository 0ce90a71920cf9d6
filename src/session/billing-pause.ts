import { APIError } from "../errors.js";
import {
  BACK_OFF,
  backOffMs,
  type Clock,
  callEndpoint,
  type HttpClient,
  type Logger,
  type SendOptions,
} from "../transport/index.js";
import { DEFAULT_CLIENT_CONFIG, type Endpoint, type GivenMessage, type Shape } from "../wire/index.js";

const LOG_INTERVAL_MS = 60_000;
const NEW_INCIDENT_AFTER_MS = 5 * 60_000;

/** A 402 pauses the requests of a client until billing is mended, for a bounded time. */
export class BillingPause {
  readonly #options: { clock: Clock; logger: Logger; maxPauseMs: number };
  #startedAt: number | undefined;
  #seenAt: number | undefined;
  #loggedAt: number | undefined;

  constructor(options: { clock: Clock; logger: Logger; maxPauseMs: number }) {
    this.#options = options;
  }

  /** True when the error is a 402 and the pause may go on; the caller then waits with `wait`. */
  shouldPause(error: unknown): error is APIError {
    if (!(error instanceof APIError) || error.status !== 402) return false;
    const { clock, logger, maxPauseMs } = this.#options;
    const now = clock.now();
    if (this.#seenAt !== undefined && now - this.#seenAt > NEW_INCIDENT_AFTER_MS) {
      this.#startedAt = undefined;
      this.#loggedAt = undefined;
    }
    this.#seenAt = now;
    this.#startedAt ??= now;
    if (now - this.#startedAt > maxPauseMs) {
      const seconds = Math.round((now - this.#startedAt) / 1000);
      logger.error(`Paused for billing for ${seconds} s, which is longer than allowed: giving up.`);
      return false;
    }
    if (this.#loggedAt === undefined || now - this.#loggedAt >= LOG_INTERVAL_MS) {
      this.#loggedAt = now;
      logger.warn(`Paused because of the account's billing status: ${error.message}`);
    }
    return true;
  }

  wait(signal?: AbortSignal | undefined): Promise<void> {
    return this.#options.clock.sleep(backOffMs(BACK_OFF.billing, 0), signal);
  }

  /** Tries again for as long as the answer is a 402 and the pause may go on. */
  async outlast<T>(attempt: () => Promise<T>, signal?: AbortSignal | undefined): Promise<T> {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!this.shouldPause(error)) throw error;
        await this.wait(signal);
      }
    }
  }
}

/** One of a client's first calls: waits out a billing pause as the later ones do, under the default settings. */
export function startupCall<S extends Shape, Answer>(
  http: HttpClient,
  endpoint: Endpoint<S, Answer>,
  message: GivenMessage<S>,
  options: SendOptions = {},
): Promise<Answer> {
  const maxPauseMs = DEFAULT_CLIENT_CONFIG.billingExceptionMaxPauseDurationSec * 1000;
  const billing = new BillingPause({ clock: http.clock, logger: http.logger, maxPauseMs });
  return billing.outlast(() => callEndpoint(http, endpoint, message, options), options.signal);
}
