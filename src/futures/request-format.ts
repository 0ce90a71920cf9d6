import { APIConnectionError, APIError } from "../errors.js";
import { isRetryableError } from "../transport/index.js";
import type { OperationEndpoint } from "../wire/index.js";
import type { FutureContext } from "./context.js";

/** Statuses with which a server that knows no protobuf may answer it; some read it as text, and crash. */
const MAYBE_THE_FORMAT: readonly number[] = [400, 422, 500];
/** Statuses with which a server that needs protobuf may answer JSON. */
const WANTS_PROTOBUF: readonly number[] = [404, 405, 415];
/** A crash closes connections, so JSON may need more than one try. */
const MAX_JSON_TRIES = 3;

/** Chooses protobuf or JSON for each attempt at one request: protobuf first, and JSON where the server refuses that. */
export class RequestFormat {
  readonly #context: FutureContext;
  readonly #hasProtobuf: boolean;
  /** The answer to protobuf because of which JSON is tried. */
  #refusal: APIError | undefined;
  #jsonTries = 0;

  constructor(context: FutureContext, endpoint: Pick<OperationEndpoint, "protobuf">) {
    this.#context = context;
    this.#hasProtobuf = endpoint.protobuf !== undefined;
  }

  get isProtobuf(): boolean {
    return this.#hasProtobuf && this.#context.trainingFormat !== "json" && this.#refusal === undefined;
  }

  /** JSON stands in for protobuf: another request to a server that remembers its answers by idempotency key. */
  get isFallback(): boolean {
    return this.#refusal !== undefined;
  }

  /** The server took the attempt: later requests begin with this format. */
  worked(): void {
    if (this.isProtobuf) this.#context.trainingFormat = "protobuf";
    if (this.#refusal === undefined) return;
    this.#context.trainingFormat = "json";
    this.#context.logger.info("This server takes training data as JSON only.");
  }

  /** The error that decides what happens next; undefined when the same request is to be sent as JSON at once. */
  failed(error: unknown): unknown {
    if (this.isProtobuf) {
      if (!this.#isAboutFormat(error)) return error;
      this.#refusal = error;
      this.#jsonTries = 0;
      return undefined;
    }
    const refusal = this.#refusal;
    if (refusal === undefined || !(error instanceof APIError || error instanceof APIConnectionError))
      return error;
    const isAfterCrash = refusal.status === 500;
    this.#jsonTries += 1;
    if (isAfterCrash && this.#jsonTries < MAX_JSON_TRIES && isRetryableError(error)) return error;
    this.#refusal = undefined;
    // A server that reads protobuf refused the content and not the format, or was just failing: its first answer counts.
    const readsProtobuf = error instanceof APIError && WANTS_PROTOBUF.includes(error.status);
    return readsProtobuf || isAfterCrash ? refusal : error;
  }

  #isAboutFormat(error: unknown): error is APIError {
    if (!(error instanceof APIError)) return false;
    if (error.status === 415) return true;
    return this.#context.trainingFormat === "unknown" && MAYBE_THE_FORMAT.includes(error.status);
  }
}
