import type { HttpClient, Logger } from "../transport/index.js";
import { encodeRequest, endpoints } from "../wire/index.js";

/** Tells the server, a bounded number at a time, that these requests are no longer awaited. Best effort. */
export class CancelQueue {
  readonly #http: HttpClient;
  readonly #logger: Logger;
  readonly #maxParallel: () => number;
  readonly #queue: string[] = [];
  #active = 0;

  constructor(options: { http: HttpClient; logger: Logger; maxParallel: () => number }) {
    this.#http = options.http;
    this.#logger = options.logger;
    this.#maxParallel = options.maxParallel;
  }

  add(requestId: string): void {
    this.#queue.push(requestId);
    this.#drain();
  }

  #drain(): void {
    while (this.#queue.length > 0 && this.#active < this.#maxParallel()) {
      this.#active += 1;
      this.#cancel(this.#queue.shift()!).finally(() => {
        this.#active -= 1;
        this.#drain();
      });
    }
  }

  async #cancel(requestId: string): Promise<void> {
    try {
      await this.#http.exchange({
        ...encodeRequest(endpoints.cancelFuture, { requestId }),
        timeout: 30_000,
        maxRetries: 2,
      });
    } catch (error) {
      this.#logger.debug(
        `Could not cancel request ${requestId}: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }
}
